"""How much a kill costs at most: finished steps that are trained again, and the seconds until training is where it was (PCcheck, ASPLOS
2025, section 4). Pure functions of measured times."""

from __future__ import annotations

import math
from dataclasses import dataclass

# A quotient this little above a whole number is that number: 0.14 / 0.02 is 7.000000000000001.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Recovery:
    """The most that one kill costs. ``steps``: finished steps that are trained again; ``seconds``: of the restart and of those steps, with
    what was trained of the step under way."""

    steps: int
    seconds: float


def recovery(
    interval: int,
    uncommitted: int,
    step: float,
    commit: float,
    load: float = 0.0,
    cost: float = 0.0,
    behind: int = 0,
    left_out: int = 0,
) -> Recovery:
    """The bound of a training with a checkpoint every ``interval`` steps (the paper's f), of which at most ``uncommitted`` (N) may be
    captured and not committed. Times are in seconds.

    - ``step`` (t): a step without a checkpoint, the shortest kind: with it most steps fit into the time of a commit. Greater than 0.
    - ``commit`` (Tw): from a checkpoint's hand-over to its commit, with ``uncommitted`` of them under way.
    - ``load`` (l): from the start of a job to its first new step, with the restored checkpoint.
    - ``cost`` (To): by how much one checkpoint lengthens the training. The steps between two checkpoints are trained again with it, each
      in t + To / f seconds.
    - ``behind``: steps from the end of a captured step to the hand-over of its capture. With ``steps_per_execution`` of E up to E - 1, and
      with ``Capture(when="late")`` E more; else 0.
    - ``left_out``: checkpoints that were skipped or given up (``Engine(when_full=)``), or failed, since the newest committed one.

    The newest committed checkpoint is that of step c. The checkpoint of step c + f is committed Tw after its hand-over, so a kill before
    that has lost f steps and those of the time Tw. Training waits before a step whose checkpoint would be the (N + 1)-th uncommitted one
    (``when_full="wait"``), so a kill never loses more than (N + 1) f steps: this holds whatever a commit takes. A checkpoint that is left
    out makes one interval twice as long. Commits in another order (``Engine(transfers=)``) lose no more, because the newest one is
    restored. What the start of the next job commits from local tiers is a gain that the bound leaves out. Where a node is lost with its
    disk, and ``Engine(uncommitted=)`` is not given, N is ``in_flight`` and ``slots`` together.

    The bound begins with the first checkpoint that the interval gives, or with the step at which the job began. While an interval changes,
    the longer of both counts. In seconds it holds for steps and commits that take as long as given. A training that waits for commits does
    not wait in the steps that it repeats: the new job has no checkpoint under way."""
    paced = step + cost / interval
    beside = min(uncommitted * interval, math.ceil(commit / step * (1 - _ROUNDING)))
    certain = (1 + left_out) * interval + behind
    seconds = load + certain * paced + min(uncommitted * interval * paced, commit)
    return Recovery(certain + beside, seconds)


def checkfreq(interval: int, step: float, load: float = 0.0, cost: float = 0.0) -> Recovery:
    """The bound of CheckFreq (FAST 2021, section 4.2): two intervals. One checkpoint is under way at once, and its commit may take as long
    as an interval. The arguments are those of ``recovery``."""
    return Recovery(2 * interval, load + 2 * (interval * step + cost))


def synchronous(interval: int, step: float, load: float = 0.0, cost: float = 0.0) -> Recovery:
    """The bound of a training that waits for the commit of each checkpoint: one interval. The arguments are those of ``recovery``."""
    return Recovery(interval, load + interval * step + cost)
