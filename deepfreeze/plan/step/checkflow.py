"""Plans when each part of a checkpoint is copied and written, so that training never waits and memory is as small as can be (Checkflow,
2025; its Algorithm 1).

1. Each tensor is cut into equal parts of at most ``per_part`` bytes.
2. Without ``memory``: the plan with the smallest peak is sought. With it: any plan that keeps that bound.
3. If there is none, and finer parts could help, each part is halved. Halves nest in the parts, so whatever had a plan still has one. Where
the parts are too many for the solver, the greedy plan is taken.
4. Of all plans with that peak (and half a percent more) the least disturbing one is taken, that is the one that moves the fewest bytes
while the cores are busy, and copies few in windows that are too short for them; of these the one that ends first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from deepfreeze.plan.step import feasible, usage
from deepfreeze.plan.step.compact_program import CompactProgram
from deepfreeze.plan.step.greedy import greedy
from deepfreeze.plan.step.highs import LinearProgram, Solution, Solver
from deepfreeze.plan.step.parts import PlannedPart, cut
from deepfreeze.plan.step.question import Question
from deepfreeze.plan.step.step_plan import StepPlan

SECONDS, GAP = 60.0, 0.005
MOST_PARTS = 500
_FINEST = 8 * MOST_PARTS  # parts for the greedy plan alone
_SLACK = 0.005  # of the peak, for the second and the third question
# Of the time that is left: for the first question, and for the second one.
_SHARES = (0.7, 0.7)


def planned(question: Question, per_part: int, solver: Solver | None = None, gap: float = GAP) -> StepPlan:
    """The plan of a question.

    ``per_part``: the most bytes of a part; ``solver``: when its time is over, the best plan so far is taken (None: a solver with
    ``SECONDS``); ``gap``: how far from the smallest peak it may be. The same question gives the same plan, unless the time is over first.

    ``OptionError`` if no plan keeps the bounds; its message says which interval, memory or rate would do. Errors of ``Solver.solve``."""
    solver = solver or Solver(SECONDS)
    parts = cut(question.tensors, per_part)
    smallest = CompactProgram(question, parts, fine=True)
    fine = solver.solve(smallest.least_peak(), relaxed=True)
    if fine.is_impossible:
        raise feasible.impossible(question, parts, solver)
    # Without an answer in the time no more is known than that.
    least = float(question.base) if fine.values is None else fine.cost * smallest.unit
    while True:
        program = CompactProgram(question, parts)
        start = greedy(question, parts, least)
        first = _solved(program, program.least_peak(), start, solver.part(_SHARES[0]), gap)
        if first.values is not None:
            break
        finer = _halved(question, parts)
        is_too_much = sum(finer) > max(MOST_PARTS, 2 * len(parts))
        alone = _by_greedy(question, finer, least) if is_too_much else None
        if alone is not None:
            return alone
        if is_too_much or finer == parts:
            raise feasible.impossible(question, parts, solver, is_proved=first.is_impossible)
        parts = finer
    made = _improved(program, first, solver, gap)
    # Parts differ by a byte, which the program rounds up; so its bound may lie a few bytes above the peak.
    bound = max(first.bound * program.unit, least)
    return StepPlan(
        question=question,
        parts=tuple(made),
        bound=min(bound, usage.peak(question, made)),
        fine_bound=least,
        greedy=None if start is None else usage.peak(question, start),
        is_best=first.is_best,
    )


def _halved(question: Question, parts: Sequence[int]) -> list[int]:
    """Into how many parts each tensor is cut if each of these is halved, as far as it has two bytes."""
    return [2 * k if tensor.nbytes >= 2 * k else k for tensor, k in zip(question.tensors, parts, strict=True)]


def _by_greedy(question: Question, parts: Sequence[int], least: float) -> StepPlan | None:
    """The greedy plan with parts of this size, or with finer ones, which are too many for the solver; None if there is none."""
    coarser: Sequence[int] = ()
    while parts != coarser and sum(parts) <= _FINEST:
        made = greedy(question, parts, least)
        if made is not None:
            held = usage.peak(question, made)
            return StepPlan(question, tuple(made), bound=least, fine_bound=least, greedy=held, is_best=False)
        coarser, parts = parts, _halved(question, parts)
    return None


def _solved(
    program: CompactProgram, asked: LinearProgram, start: Sequence[PlannedPart] | None, solver: Solver, gap: float
) -> Solution:
    """The solution of one question, or ``start`` if the time is over first."""
    values = None if start is None else program.values(start, usage.peak(program.question, start))
    found = solver.solve(asked, gap=gap, start=values)
    if found.values is None and values is not None and not found.is_impossible:
        return replace(found, values=np.array(values))
    return found


def _improved(program: CompactProgram, first: Solution, solver: Solver, gap: float) -> list[PlannedPart]:
    """Of the plans with about as small a peak the least disturbing one that ends first."""
    assert first.values is not None
    made = program.plan(first.values)
    most = usage.peak(program.question, made) * (1 + _SLACK)
    if program.question.memory is not None:
        most = program.question.memory
    calmest = program.least_disturbance(most)
    second = solver.part(_SHARES[1]).solve(calmest, gap=gap, start=program.calmly(first.values))
    if second.values is None:
        return made
    made = program.plan(second.values)
    earliest = program.earliest_end(most, calmest, second.cost + abs(second.cost) * _SLACK)
    begun = program.ending(earliest, second.values)
    third = solver.solve(earliest, gap=gap, start=begun)
    return made if third.values is None else program.plan(third.values)
