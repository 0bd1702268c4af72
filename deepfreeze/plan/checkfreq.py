"""How many steps apart checkpoints should be: CheckFreq's Algorithm 1 (Mohan, Phanishayee, Chidambaram, FAST 2021, section 4.2), for
several checkpoints under way at once, and with the time between failures. Pure functions of measured times."""

from __future__ import annotations

import math
from dataclasses import dataclass

from deepfreeze.plan.never import NEVER

# A quotient this little above a whole number is that number: 0.6 / 0.2 is 2.9999999999999996, and 0.35 / 0.035 is 10.000000000000002.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Profile:
    """What one rank has measured of its training. Times are in seconds; the paper's names are in brackets.

    - ``iteration`` (Ti): one step without a checkpoint. Greater than 0.
    - ``update`` (Tw): the part of a step in which weights are written.
    - ``copy`` (Tc): the copy of this rank's part to memory of the host.
    - ``persist`` (Ts): from the hand-over of a checkpoint to its commit.
    - ``nbytes`` (m): bytes of this rank's part.
    - ``device_copy`` (Tg): the copy on the device; None if there is no device.
    - ``device_used``, ``device_size`` (M, Mmax): bytes of the device's memory, in use and in all.
    - ``cost`` (To): by how much one checkpoint lengthens the training, as measured. None: it is estimated from the others.
    """

    iteration: float
    update: float
    copy: float
    persist: float
    nbytes: int
    device_copy: float | None = None
    device_used: int = 0
    device_size: int = 0
    cost: float | None = None


@dataclass(frozen=True)
class Bounds:
    """The interval that follows from a profile, and the bounds that it follows from. All are steps, 1 or more.

    - ``by_commit``: fewer steps, and a checkpoint would begin before the one before it is committed; with several under way at once:
      training would wait for commits for longer than the budget allows.
    - ``by_budget``: fewer steps, and the training would be longer than the budget allows.
    - ``by_failures``: the best interval for the time between failures; None if that time is not known.
    - ``mode``: where the copy is taken to: "device" or "host".
    - ``cost`` (To): seconds by which one checkpoint lengthens the training.
    """

    by_commit: int
    by_budget: int
    by_failures: int | None
    mode: str
    cost: float

    @property
    def interval(self) -> int:
        """The number of steps between two checkpoints."""
        return max(self.by_commit, self.by_budget, self.by_failures or 1)

    @property
    def decided_by(self) -> str:
        """The bound that the interval is equal to: "budget", "commit" or "failures", the first of these that is."""
        bounds = {"budget": self.by_budget, "commit": self.by_commit, "failures": self.by_failures}
        return next(name for name, bound in bounds.items() if bound == self.interval)


def algorithm_1(profile: Profile, overhead: float, uncommitted: int = 1, mtbf: float | None = None) -> Bounds:
    """The interval for a training that may become longer by the fraction ``overhead`` (the paper's p). ``uncommitted``: how many
    checkpoints may be under way at once (N); ``mtbf``: seconds between two failures of the whole job.

    The paper has one checkpoint under way, which is committed before the next one begins. So a commit (Tc + Ts) fits into the time from
    one checkpoint to the next: k steps, and what the checkpoint costs (To). Hence k is at least (Tc + Ts - To) / Ti.

    With N > 1 the bound is PCcheck's formula (3) (Strati, Friedman, Klimovic, ASPLOS 2025): Tw / (N q t) steps, where Tw is Tc + Ts, q is
    1 + p and t is Ti. Training may wait for a commit there, and N intervals, each as long as the budget allows, hold one. To is not taken
    off Tw, because q has it already: an interval of k steps may last q k Ti with all that checkpoints cost. If To were taken off
    besides, it would count twice, and training could become longer by p + p / N."""
    mode, cost = _mode(profile)
    if profile.cost is not None:
        cost = profile.cost
    commit = profile.copy + profile.persist
    apart = commit - cost if uncommitted == 1 else commit / (uncommitted * (1 + overhead))
    best = None if mtbf is None else _whole(max(0.0, _daly(cost, mtbf)) / profile.iteration)
    return Bounds(
        by_commit=_whole(apart / profile.iteration),
        by_budget=_whole(cost / (overhead * profile.iteration)),
        by_failures=best,
        mode=mode,
        cost=cost,
    )


def _mode(profile: Profile) -> tuple[str, float]:
    """Where the copy is taken to, and the seconds for which training waits for it (To): the part of the copy that does not fit beside the
    next step's forward and backward, or all of a copy on the device."""
    host = max(0.0, profile.copy - (profile.iteration - profile.update))
    device = profile.device_copy
    if device is not None and profile.device_size - profile.device_used > profile.nbytes and device <= host:
        return "device", device
    return "host", host


def _daly(cost: float, mtbf: float) -> float:
    """The interval in seconds that loses least time to checkpoints and failures together (Daly, Future Generation Computer Systems 22,
    2006, equation 37). ``cost``: of a checkpoint, in seconds; ``mtbf``: mean seconds between failures."""
    if cost >= 2 * mtbf:
        return mtbf
    ratio = cost / (2 * mtbf)
    return math.sqrt(2 * cost * mtbf) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - cost


def _whole(steps: float) -> int:
    """The least whole number of steps, 1 or more, that is not below ``steps``."""
    return int(min(max(1.0, math.ceil(steps * (1 - _ROUNDING))), float(NEVER)))
