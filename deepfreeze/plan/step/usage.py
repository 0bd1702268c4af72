"""The memory that a plan of a step needs, and the rate of the store that it uses, window by window."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from deepfreeze.plan.step.parts import PlannedPart
from deepfreeze.plan.step.question import Question


def held(question: Question, parts: Sequence[PlannedPart]) -> np.ndarray:
    """(horizon,) bytes of copies that are held in each window of a period. A copy counts from the window in which it is made up to the one
    in which it is written, both included. Copies of the periods before and behind count too."""
    # A copy that is held longer than a period stands beside the next one: each whole turn counts everywhere.
    change, everywhere = np.zeros(question.horizon + 1), 0
    for part in parts:
        if part.copy is None:
            continue
        turns, rest = divmod(part.write + 1 - part.copy, question.horizon)
        everywhere += turns * part.nbytes
        begin = part.copy % question.horizon
        change[begin] += part.nbytes
        if begin + rest <= question.horizon:
            change[begin + rest] -= part.nbytes
        else:
            change[[question.horizon, 0, begin + rest - question.horizon]] += [-part.nbytes, part.nbytes, -part.nbytes]
    return (np.cumsum(change[:-1]) + everywhere).astype(np.int64)


def written(question: Question, parts: Sequence[PlannedPart]) -> np.ndarray:
    """(horizon,) bytes that are written in each window of a period."""
    made = np.zeros(question.horizon, np.int64)
    for part in parts:
        made[part.write % question.horizon] += part.nbytes
    return made


def bases(question: Question) -> np.ndarray:
    """(horizon,) bytes that are in memory beside copies, in each window of a period."""
    return np.array([window.base for window in question.windows] * question.every, np.int64)


def capacities(question: Question) -> np.ndarray:
    """(horizon,) bytes that can be written in each window of a period."""
    return np.array([window.capacity for window in question.windows] * question.every, np.int64)


def left_over(question: Question, parts: Sequence[PlannedPart]) -> np.ndarray:
    """(horizon,) bytes that each window leaves to the one behind it, of those that can be written: at most ``question.carry``. Negative
    where more is written than can be."""
    room = capacities(question) - written(question, parts)
    made, left = np.zeros(question.horizon, np.int64), 0
    for last in (
        (False, True) if question.cyclic else (True,)
    ):  # the last time with what the last window leaves to the first one
        for number, more in enumerate(room.tolist()):
            made[number] = left = min(question.carry, left + more)
            left = left if last else max(0, left)
    return made


def peak(question: Question, parts: Sequence[PlannedPart]) -> int:
    """The most bytes that copies and base hold together."""
    return int((held(question, parts) + bases(question)).max())
