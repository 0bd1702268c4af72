"""Checkflow's program as the paper has it (2025, (2) to (12)): three unknowns, each 0 or 1, for every part and every operator. It is too
large for real models here, and the compact form must have the same optimum: ``compact_program``.

The paper leaves three things open. Nothing can be written in the first window, because (7) says nothing of it. Alpha needs no
integers, because C + P + S is as large as each of the three and never above 1, by (2). And (8), which has a tensor copied before its
update, says nothing of an update in the first operator, before which there is none. Here such a question has no plan: the tensor
would have to be copied before the period begins, when nothing is held.
"""

from __future__ import annotations

from collections.abc import Sequence

from deepfreeze.plan.step.highs import INFINITE, LinearProgram, Solver
from deepfreeze.plan.step.parts import PlannedPart, pieces
from deepfreeze.plan.step.question import Question


def smallest_peak(question: Question, parts: Sequence[int]) -> tuple[list[PlannedPart], int] | None:
    """A plan with the smallest peak, and that peak in bytes; None if there is no plan, for example because a tensor is updated in window 0.
    ``parts``: into how many parts each tensor is cut, each of which is a tensor of the paper's. The question must have no cycle, no direct
    writes and no ``carry``: else ValueError."""
    if question.cyclic or question.direct or question.carry:
        raise ValueError(
            "the paper's program has no cycles, no direct writes and nothing that a window leaves to the next one"
        )
    horizon, program = question.horizon, LinearProgram()
    sizes: list[PlannedPart] = []
    for index, (tensor, k) in enumerate(zip(question.tensors, parts, strict=True)):
        sizes += [PlannedPart(index, begin, nbytes, 0, 0) for begin, nbytes in pieces(tensor.nbytes, k)]
    unit = max(part.nbytes for part in sizes)  # bytes
    most = INFINITE if question.memory is None else question.memory / unit
    peak = program.column(question.base / unit, most, 1.0)

    def unknowns() -> list[int]:
        return [program.column(0.0, 1.0, integer=True) for _ in range(horizon)]

    # (6), that the tensor is in device memory when it is copied, holds of weights and of an optimizer's tensors in every window.
    created, preserved, offloaded = ([unknowns() for _ in sizes] for _ in range(3))
    for part, c, p, s in zip(sizes, created, preserved, offloaded, strict=True):
        for t in range(horizon):
            program.row(-INFINITE, 1.0, [(c[t], 1.0), (p[t], 1.0), (s[t], 1.0)])  # (2)
            before = [(c[t - 1], 1.0), (p[t - 1], 1.0)] if t else []
            program.row(0.0, INFINITE, [*before, (p[t], -1.0)])  # (3); in the first window (5)
            program.row(0.0, INFINITE, [*before, (s[t], -1.0)])  # (7)
        for once in (c, s):
            program.row(1.0, 1.0, [(column, 1.0) for column in once])  # (4)
        update = question.tensors[part.tensor].update
        program.row(1.0, INFINITE, [(column, 1.0) for column in c[:update]])  # (8)
    for t in range(horizon):
        weights = [part.nbytes / unit for part in sizes]
        capacity = question.window(t).capacity / unit
        program.row(-INFINITE, capacity, [(s[t], size) for s, size in zip(offloaded, weights, strict=True)])  # (9)
        held = [
            (kind[t], size)
            for kinds in (created, preserved, offloaded)
            for kind, size in zip(kinds, weights, strict=True)
        ]
        program.row(-INFINITE, -question.window(t).base / unit, [*held, (peak, -1.0)])  # (10), (11)
    found = Solver().solve(program)  # (12)
    if found.values is None:
        return None

    def when(columns: list[int]) -> int:
        return next(t for t, column in enumerate(columns) if found.values is not None and found.values[column] > 0.5)

    made = [
        PlannedPart(part.tensor, part.begin, part.nbytes, when(c), when(s))
        for part, c, s in zip(sizes, created, offloaded, strict=True)
    ]
    return made, round(found.cost * unit)
