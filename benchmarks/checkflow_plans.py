"""Plans of measured steps, for ``benchmarks.checkflow``: also where the store is too slow for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deepfreeze.plan.step import feasible, planning
from deepfreeze.plan.step.checkflow import SECONDS, planned
from deepfreeze.plan.step.highs import Solver
from deepfreeze.plan.step.parts import PlannedPart
from deepfreeze.plan.step.profile import StepProfile
from deepfreeze.plan.step.question import Question
from deepfreeze.plan.step.simulate import Played, played
from deepfreeze.plan.step.step_plan import StepPlan

SHARE = 0.9  # of the store's bytes, that a plan uses at most


@dataclass(frozen=True)
class Seen:
    """How a training was seen to follow a plan. ``store``: bytes that the store takes in a second; ``copy_rate``: bytes that training
    copies, or hands over, in a second; ``cost``: seconds of a core that a byte takes beyond those of the training that was profiled."""

    store: float
    copy_rate: float
    cost: float


@dataclass(frozen=True)
class Reachable:
    """A plan for a store that is ``faster`` times as fast as measured, 1 where the measured one does. Training waits for the difference.
    ``asked``: the question with the measured store."""

    plan: StepPlan
    faster: float
    asked: Question

    def played(self, parts: Sequence[PlannedPart] | None = None, seen: Seen | None = None) -> Played:
        """The plan, or other parts, on the store that was measured, with copies as they were ``seen``. The windows have the copies of the
        profiled step in them, so only what others cost beyond these makes them longer."""
        parts = self.plan.parts if parts is None else parts
        if seen is None:
            return played(self.asked, parts)
        windows = self.asked.windows
        measured = sum(window.capacity for window in windows) / sum(window.seconds for window in windows)
        slower = measured / seen.store
        return played(self.asked, parts, slower=slower, copy_rate=seen.copy_rate, cost=seen.cost)


def reachable(profile: StepProfile, every: int, direct: bool = False, seconds: float = SECONDS) -> Reachable:
    """The plan of a profile's step. If the store takes too few bytes for any plan, or for one that uses ``SHARE`` of them, it is made for
    one that is faster. ``seconds``: of the solver. OptionError if there is no plan all the same."""
    asked = planning.question(profile, every=every, direct=direct)
    solver = Solver(seconds)
    needed = feasible.least_rate(asked, planning.parts(asked), solver.part(1 / 4))
    faster = 1.0 if needed is None else max(1.0, needed / SHARE)
    plan = planned(asked.faster(faster), planning.part_size(profile.nbytes), solver)
    return Reachable(plan, faster, asked)
