"""Baselines for a plan of a step: captures as they are today, a greedy plan, CheckFreq's and a synchronous checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deepfreeze.plan.step import usage
from deepfreeze.plan.step.greedy import at_update, greedy
from deepfreeze.plan.step.parts import PlannedPart
from deepfreeze.plan.step.question import Question
from deepfreeze.plan.step.step_plan import end_seconds

UPDATE, GREEDY, CHECKFREQ, SYNCHRONOUS = "at the update", "greedy", "CheckFreq", "synchronous"
_BUFFERS = 2  # captures that today's schedule holds where the store is too slow for all of them


@dataclass(frozen=True)
class Baseline:
    """``extra``: bytes beyond those that are in memory without a checkpoint; None if there is no such plan. ``stall``: seconds that
    training waits for each checkpoint; ``end``: seconds from the end of the captured step until all is written."""

    name: str
    extra: int | None
    stall: float
    end: float | None


def baselines(question: Question, parts: Sequence[int]) -> list[Baseline]:
    """All of them, with each tensor cut into so many parts."""
    seconds = sum(window.seconds for window in question.windows)
    per_step = sum(window.capacity for window in question.windows)
    # Of writing the whole checkpoint, at the mean rate.
    writing = question.nbytes * seconds / per_step if per_step else float("inf")
    stall = max(0.0, writing - question.every * seconds)
    today = at_update(question, parts)
    late = greedy(question, parts)
    return [
        Baseline(UPDATE, _BUFFERS * question.nbytes, stall, None) if today is None else _of(UPDATE, question, today),
        Baseline(GREEDY, None, 0.0, None) if late is None else _of(GREEDY, question, late),
        Baseline(CHECKFREQ, question.nbytes, stall, writing),
        Baseline(SYNCHRONOUS, 0, writing, writing),
    ]


def _of(name: str, question: Question, parts: Sequence[PlannedPart]) -> Baseline:
    return Baseline(name, usage.peak(question, parts) - question.base, 0.0, end_seconds(question, parts))
