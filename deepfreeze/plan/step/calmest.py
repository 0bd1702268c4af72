"""Of the plans of a step that need little memory: the least disturbing one, and of these the one that ends first."""

from __future__ import annotations

import numpy as np

from deepfreeze.plan.step.compact_program import CompactProgram
from deepfreeze.plan.step.earliest_end import ended_early
from deepfreeze.plan.step.highs import Solver
from deepfreeze.plan.step.parts import PlannedPart
from deepfreeze.plan.step.question import Question

SLACK = 0.005  # of the smallest peak: so much more memory a calmer plan may take
GAP = 0.005  # of a cost: so far from the best one a solution with integers may be
# Of the time that is left, for the least disturbance; and the most seconds for the earliest end, which matters little.
_SHARE, _SECONDS = 0.8, 15.0


def calmest(
    question: Question, program: CompactProgram, most: float, solver: Solver, start: np.ndarray | None = None
) -> list[PlannedPart] | None:
    """The parts of a plan with at most ``most`` bytes of memory. The plan disturbs training the least: it moves the fewest bytes while the
    cores are busy, and copies few in windows that are too short for them. Of plans that do so about as well, it is the one that ends first.
    If the solver does not find the earliest end in its time, the least disturbing plan is taken, and its last parts are written earlier
    where there is room.

    ``program``: of ``question``, or of one with less room. ``start``: values of its columns for a plan that keeps the bound. None if there
    is no plan, or if none was found in the time. Errors of ``Solver.solve``."""
    calm = program.least_disturbance(most)
    first = solver.part(_SHARE).solve(calm, gap=GAP, start=None if start is None else program.calmly(start))
    if first.values is None:
        return None
    earliest = program.earliest_end(most, calm, first.cost + abs(first.cost) * SLACK)
    begun = program.ending(earliest, first.values)
    second = solver.part(1.0, _SECONDS).solve(earliest, gap=GAP, start=begun)
    # A plan that the solver has found, and not proved to be the best, depends on the machine's speed. So it is not used.
    if second.is_best and second.values is not None:
        return program.plan(second.values)
    return ended_early(question, program.plan(first.values), SLACK, solver)
