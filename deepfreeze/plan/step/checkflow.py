"""Plans when each part of a checkpoint is copied and written, so that training never waits and memory is as small as can be (Checkflow,
2025).

The program without integers (``compact_program.in_any_parts``) gives the smallest peak of all plans, however small their parts are. Its
solutions are plans themselves: a tensor is cut where the next window goes on with it. A solution that HiGHS finds lies at a corner, where
few tensors are moved in more than one window, so the parts are few. The paper cuts tensors into equal parts and needs integers
(``equal_parts``). That takes longer, and the peak is larger by up to a part."""

from __future__ import annotations

from collections.abc import Sequence

from deepfreeze.plan.step import usage
from deepfreeze.plan.step.calmest import SLACK, calmest
from deepfreeze.plan.step.checker import violations
from deepfreeze.plan.step.compact_program import ROUNDED, in_any_parts
from deepfreeze.plan.step.equal_parts import in_equal_parts, least_peak
from deepfreeze.plan.step.greedy import greedy
from deepfreeze.plan.step.highs import Solver
from deepfreeze.plan.step.parts import PlannedPart, cut
from deepfreeze.plan.step.question import Question
from deepfreeze.plan.step.step_plan import StepPlan

SECONDS = 60.0


def planned(question: Question, per_part: int, solver: Solver | None = None) -> StepPlan:
    """The plan of a question, with the smallest peak and half a percent more; of such plans the calmest one.

    ``per_part``: the most bytes of a part; ``solver``: when its time is over, the plan so far is taken (None: a solver with ``SECONDS``).
    The same question gives the same plan where no program reaches its limit of time: that of the solver, and 15 s for the earliest end.

    ``OptionError`` if no plan keeps the bounds; its message says which interval, memory or rate would do. Errors of ``Solver.solve``."""
    solver = solver or Solver(SECONDS)
    parts = cut(question.tensors, per_part)
    least = least_peak(question, parts, solver)
    made = _in_any_parts(question, parts, least, solver)
    if made is None:
        return in_equal_parts(question, per_part, solver, least)
    start, peak = greedy(question, parts, least), usage.peak(question, made)
    return StepPlan(
        question=question,
        parts=tuple(made),
        bound=min(least, peak),
        fine_bound=least,
        greedy=None if start is None else usage.peak(question, start),
        is_best=True,
    )


def _in_any_parts(question: Question, parts: Sequence[int], least: float, solver: Solver) -> list[PlannedPart] | None:
    """The plan whose parts end anywhere. None if none was found in the time; or if the question is about so few bytes that parts of whole
    bytes make a difference."""
    program = in_any_parts(question, parts)
    most = program.question.memory
    if most is None:
        most = int(least + max(0.0, least * SLACK - ROUNDED * len(question.tensors)))
    made = calmest(question, program, most, solver)
    return None if made is None or violations(question, made) else made
