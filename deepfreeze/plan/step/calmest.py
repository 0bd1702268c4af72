"""Of the plans of a step that need little memory: the least disturbing one, and of these the one that ends first."""

from __future__ import annotations

import numpy as np

from deepfreeze.plan.step.compact_program import CompactProgram
from deepfreeze.plan.step.highs import Solver

SLACK = 0.005  # of the smallest peak: so much more memory a calmer plan may take
# Of the time that is left, for the first question; and the most seconds for the second one, which changes little.
_SHARE, _SECONDS = 0.8, 15.0


def calmest(
    program: CompactProgram, most: float, solver: Solver, gap: float, start: np.ndarray | None = None
) -> np.ndarray | None:
    """The values of the columns of the plan that moves the fewest bytes while the cores are busy, and copies few in windows that are too
    short for them, with at most ``most`` bytes of memory; of the plans for which that is about so, of the one that ends first. None if
    none was found in the time, or if there is none. ``gap``: as for ``Solver.solve``; ``start``: values of a plan that keeps the bound."""
    calm = program.least_disturbance(most)
    first = solver.part(_SHARE).solve(calm, gap=gap, start=None if start is None else program.calmly(start))
    if first.values is None:
        return None
    earliest = program.earliest_end(most, calm, first.cost + abs(first.cost) * SLACK)
    begun = program.ending(earliest, first.values)
    second = solver.part(1.0, _SECONDS).solve(earliest, gap=gap, start=begun)
    return first.values if second.values is None else second.values
