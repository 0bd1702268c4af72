"""Lets a plan of a step end earlier: parts that are written in its last windows are written in earlier ones, behind their copies.

Such moves need no more memory, because a copy that is written earlier is free earlier. The windows of copies stay as they are, so another
plan may end even earlier; ``calmest`` asks the solver for that one first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from deepfreeze.plan.step import usage
from deepfreeze.plan.step.parts import PlannedPart
from deepfreeze.plan.step.question import Question


def disturbance(question: Question, parts: Sequence[PlannedPart]) -> float:
    """Bytes that are copied and written, each times the share of the cores that training uses in its window."""
    moved = [(part, window) for part in parts for window in (part.copy, part.write) if window is not None]
    return sum(part.nbytes * question.window(window).busy for part, window in moved)


def ended_early(question: Question, parts: Sequence[PlannedPart], slack: float) -> list[PlannedPart]:
    """The plan with an earlier end, if it has one. Its disturbance is larger by such a part (``slack``) at most."""
    made = list(parts)
    most = disturbance(question, made) * (1 + slack)
    while made:
        earlier = _without_last_window(question, made)
        if earlier is None or disturbance(question, earlier) > most:
            break
        made = earlier
    return made


def _without_last_window(question: Question, parts: Sequence[PlannedPart]) -> list[PlannedPart] | None:
    """The plan with nothing written in its last window; None if a part of that window has no room elsewhere. Each part takes the least busy
    window that has room for it, of several the latest one."""
    made, last = list(parts), max(part.write for part in parts)
    for at in sorted((at for at, part in enumerate(made) if part.write == last), key=lambda at: -made[at].nbytes):
        part = made[at]
        first = question.directs(question.tensors[part.tensor]).start if part.copy is None else part.copy + 1
        for window in sorted(range(first, last), key=lambda window: (question.window(window).busy, -window)):
            made[at] = replace(part, write=window)
            if usage.left_over(question, made).min() >= 0:
                break
        else:
            return None
    return made
