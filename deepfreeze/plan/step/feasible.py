"""Answers for a question that no plan keeps: which interval, which memory, or which rate of the store would do?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from deepfreeze.errors import OptionError
from deepfreeze.plan.step import usage
from deepfreeze.plan.step.compact_program import ROUNDED, in_any_parts
from deepfreeze.plan.step.highs import Solver
from deepfreeze.plan.step.question import MOST_COUNTS, Question
from deepfreeze.wording import size

_SECONDS = 5.0  # for each answer: somebody waits for it
_MOST = 8  # intervals are tried up to so many times the first one that could do


@dataclass(frozen=True)
class Feasible:
    """Each is for parts that may end anywhere, and None if it was not found in the time.

    - ``every``: the smallest interval, with this memory and this rate.
    - ``memory``: the fewest bytes, with this interval and this rate.
    - ``rate``: the smallest multiple of the store's rate, with this interval and this memory."""

    every: int | None
    memory: int | None
    rate: float | None


def limits(question: Question, parts: Sequence[int], solver: Solver) -> Feasible:
    """The bounds that would do, each of the three sought in a third of the solver's time, and for at most ``_SECONDS``."""
    return Feasible(
        least_every(question, parts, solver.part(1 / 3, _SECONDS)),
        least_memory(question, parts, solver.part(1 / 2, _SECONDS)),
        least_rate(question, parts, solver.part(1.0, _SECONDS)),
    )


def least_every(question: Question, parts: Sequence[int], solver: Solver) -> int | None:
    """The smallest interval that has a plan. Intervals are tried one by one, from the first one in which the store takes all bytes, up to
    ``_MOST`` times as long ones."""
    taken = sum(window.capacity for window in question.windows)
    if not taken:
        return None
    first = max(1, math.ceil(question.nbytes / taken))
    for every in range(first, first * _MOST + 1):
        tried = replace(question, every=every)
        if not solver.left or tried.counts > MOST_COUNTS:
            return None
        found = solver.solve(in_any_parts(tried, parts).least_peak())
        if found.values is not None:
            return every
        if not found.is_impossible:
            return None
    return None


def least_memory(question: Question, parts: Sequence[int], solver: Solver) -> int | None:
    """The fewest bytes of memory that have a plan."""
    program = in_any_parts(replace(question, memory=None), parts)
    found = solver.solve(program.least_peak())
    if found.values is None:
        return None
    # The bytes by which the program has less room than the question, and some for the fractions of the solver's arithmetic.
    return math.ceil(found.cost * program.unit) + (ROUNDED + 1) * len(question.tensors)


def least_rate(question: Question, parts: Sequence[int], solver: Solver) -> float | None:
    """The smallest multiple of the store's rate that has a plan."""
    found = solver.solve(in_any_parts(question, parts).least_rate())
    return None if found.values is None else found.cost


def impossible(question: Question, parts: Sequence[int], solver: Solver, is_proved: bool = True) -> OptionError:
    """The error for a question without a plan. It names what would do. ``is_proved``: there is no plan; otherwise none was found before the
    solver's time was over."""
    taken = int(usage.capacities(question).sum())
    found = f"that the store takes {size(taken)} in {_steps(question.every)}, of the {size(question.nbytes)} of a checkpoint"
    if taken >= question.nbytes:
        found = (
            f"none, although the store takes {size(taken)} in {_steps(question.every)}, and a checkpoint has {size(question.nbytes)}: "
            "what is not written before its tensor's next update needs memory until then"
        )
    if not is_proved:
        found = (
            f"none before the solver's time was over, and no proof that there is none: the store takes {size(taken)} in "
            f"{_steps(question.every)}, and a checkpoint has {size(question.nbytes)}"
        )
    would = limits(question, parts, solver)
    ways = []
    if would.every is not None:
        ways.append(f"every={would.every}" + ("" if question.memory is None else " with this memory"))
    if would.memory is not None and question.memory is not None:
        ways.append(f"memory={_given(question, would.memory)} with this interval")
    if would.rate is not None:
        ways.append(f"a store that is {math.ceil(would.rate * 100) / 100:.2f} times as fast")
    asked = "" if question.memory is None else f"memory={_given(question, question.memory)}, "
    return OptionError(
        where=f"{asked}every={question.every}",
        expected="room for a plan of the step",
        found=found,
        todo=f"feasible: {', or '.join(ways)}" if ways else "take a longer interval, more memory or a faster store",
    )


def _given(question: Question, memory: int) -> str:
    """The ``memory=`` by which such a question is asked."""
    return size(memory - question.base + question.blocks)


def _steps(number: int) -> str:
    return "a step" if number == 1 else f"{number} steps"
