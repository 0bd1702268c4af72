"""Plans of measured steps, for ``benchmarks.checkflow``: also where the store is too slow for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from deepfreeze.plan.step import feasible, planning
from deepfreeze.plan.step.checkflow import SECONDS, planned
from deepfreeze.plan.step.highs import Solver
from deepfreeze.plan.step.parts import PlannedPart
from deepfreeze.plan.step.profile import StepProfile
from deepfreeze.plan.step.question import Question, StepWindow
from deepfreeze.plan.step.simulate import Pace, Played, held_by_step, played
from deepfreeze.plan.step.step_plan import StepPlan

SHARE = 0.9  # of the store's bytes, that a plan uses at most


@dataclass(frozen=True)
class Seen:
    """How a training was seen to follow a plan. ``store``, ``beside``: bytes that the store takes in a second while training does not
    copy, and while it does; ``writers``: parts that it takes at once; ``copy_rate``: bytes that training copies, or hands over, in a
    second; ``cost``: seconds of a core that a byte takes beyond those of the training that was profiled."""

    store: float
    beside: float
    writers: int
    copy_rate: float
    cost: float = 0.0

    def pace(self, asked: Question) -> Pace:
        """The same, beside the store that a question has."""
        windows = asked.windows
        measured = sum(window.capacity for window in windows) / sum(window.seconds for window in windows)
        return Pace(measured / self.store, self.beside / self.store, self.writers, self.copy_rate, self.cost)


@dataclass(frozen=True)
class Reachable:
    """A plan for a store that is ``faster`` times as fast as measured, 1 where the measured one does. Training waits for the difference.
    ``asked``: the question with the measured store."""

    plan: StepPlan
    faster: float
    asked: Question

    def played(
        self, parts: Sequence[PlannedPart] | None = None, seen: Seen | None = None, room: int | None = None
    ) -> Played:
        """The plan, or other parts, on the store that was measured, with copies as they were ``seen``. The windows have the copies of the
        profiled step in them, so only what others cost beyond these makes them longer."""
        parts = self.plan.parts if parts is None else parts
        pace = Pace() if seen is None else seen.pace(self.asked)
        return played(self.asked, parts, pace, room=room)

    def held_by_step(self, steps: Sequence[Sequence[float]], seen: Seen, room: int) -> list[int]:
        """The most bytes of copies that the plan holds in each of ``steps``, given by the seconds of their windows. What copies cost is in
        these. The store has one rate, as ``seen``: that of a window is known from three checkpoints alone. ``room``: bytes of memory for
        copies."""
        even = replace(self.asked, windows=tuple(_even(self.asked.windows, seen.store)))
        return held_by_step(even, self.plan.parts, steps, replace(seen, cost=0.0).pace(even), room=room)


def _even(windows: Sequence[StepWindow], rate: float) -> Iterable[StepWindow]:
    """The windows with a store that takes so many bytes in a second in each."""
    return (replace(window, capacity=round(window.seconds * rate)) for window in windows)


def seconds_seen(windows: Sequence[StepWindow], begun: Mapping[int, float]) -> np.ndarray:
    """(windows,) seconds of each window of a step, from the times at which some were seen to begin: at least the first one, and the end of
    the step, which counts as one window more. Windows in between share the time as those of the question do."""
    ends = np.cumsum([0.0, *(window.seconds for window in windows)])
    known = sorted(begun)
    # A function may begin behind that of the next window.
    at = np.maximum.accumulate([begun[one] for one in known])
    return np.diff(np.interp(ends, ends[known], at))


def reachable(profile: StepProfile, every: int, direct: bool = False, seconds: float = SECONDS) -> Reachable:
    """The plan of a profile's step. If the store takes too few bytes for any plan, or for one that uses ``SHARE`` of them, it is made for
    one that is faster. ``seconds``: of the solver. OptionError if there is no plan all the same."""
    asked = planning.question(profile, every=every, direct=direct)
    solver = Solver(seconds)
    needed = feasible.least_rate(asked, planning.parts(asked), solver.part(1 / 4))
    faster = 1.0 if needed is None else max(1.0, needed / SHARE)
    plan = planned(asked.faster(faster), planning.part_size(profile.nbytes), solver)
    return Reachable(plan, faster, asked)
