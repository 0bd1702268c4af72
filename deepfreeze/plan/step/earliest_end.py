"""Lets a plan of a step end earlier: parts that are written in its last windows are written in earlier ones, behind their copies.

Such moves need no more memory, because a copy that is written earlier is free earlier. Copies stay in their windows, so another plan may
end even earlier; ``calmest`` asks the solver for that plan first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from deepfreeze.plan.step import usage
from deepfreeze.plan.step.highs import Solver
from deepfreeze.plan.step.parts import PlannedPart
from deepfreeze.plan.step.question import Question


def disturbance(question: Question, parts: Sequence[PlannedPart]) -> float:
    """Bytes that are copied and written, each times the share of the cores that training uses in its window."""
    moved = [(part, window) for part in parts for window in (part.copy, part.write) if window is not None]
    return sum(part.nbytes * question.window(window).busy for part, window in moved)


def ended_early(question: Question, parts: Sequence[PlannedPart], slack: float, solver: Solver) -> list[PlannedPart]:
    """The plan with an earlier end, if this way finds one. Its disturbance is at most (1 + ``slack``) times that of ``parts``. Copies don't
    move, so no window has more of them than before.

    ``solver``: when its time is over, the plan so far is taken. ``Stopped`` if nobody wants the plan any more."""
    made = list(parts)
    most = disturbance(question, made) * (1 + slack)
    while made and solver.left:
        solver.raise_if_stopped()
        earlier = _without_last_window(question, made)
        if earlier is None or disturbance(question, earlier) > most:
            break
        made = earlier
    return made


def _without_last_window(question: Question, parts: Sequence[PlannedPart]) -> list[PlannedPart] | None:
    """The plan with nothing written in its last window. Parts whose copies were made last choose first. Each takes the least busy window
    that has room for it, of several the earliest one. None if one of them finds no room so."""
    made, last = list(parts), max(part.write for part in parts)
    written, takes = usage.written(question, made), usage.capacities(question) + question.carry

    def first(part: PlannedPart) -> int:
        return question.directs(question.tensors[part.tensor]).start if part.copy is None else part.copy + 1

    leaving = [at for at, part in enumerate(made) if part.write == last]
    for at in sorted(leaving, key=lambda at: (-first(made[at]), -made[at].nbytes)):
        part = made[at]
        written[last % question.horizon] -= part.nbytes
        for window in sorted(range(first(part), last), key=lambda window: (question.window(window).busy, window)):
            number = window % question.horizon
            if written[number] + part.nbytes > takes[number]:
                continue
            made[at] = replace(part, write=window)
            if usage.left_over(question, made).min() >= 0:
                written[number] += part.nbytes
                break
        else:
            return None
    return made
