"""Plans of a step whose tensors are cut into equal parts (Checkflow, 2025, Algorithm 1).

1. Each tensor is cut into equal parts of at most ``per_part`` bytes.
2. Without ``memory``: the plan with the smallest peak is sought. With it: any plan that keeps that bound.
3. If there is none, and finer parts could help, each part is halved. Halves nest in the parts, so whatever had a plan still has one. Where
the parts are too many for the solver, the greedy plan is taken.
4. Of all plans with that peak (and half a percent more) the least disturbing one is taken (``calmest``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from deepfreeze.plan.step import feasible, usage
from deepfreeze.plan.step.calmest import GAP, SLACK, calmest
from deepfreeze.plan.step.compact_program import CompactProgram
from deepfreeze.plan.step.greedy import greedy
from deepfreeze.plan.step.highs import LinearProgram, Solution, Solver
from deepfreeze.plan.step.parts import PlannedPart, cut
from deepfreeze.plan.step.question import Question
from deepfreeze.plan.step.step_plan import StepPlan

MOST_PARTS = 500
_FINEST = 8 * MOST_PARTS  # parts for the greedy plan alone
_SHARE = 0.7  # of the time, for the smallest peak


def least_peak(question: Question, parts: Sequence[int], solver: Solver) -> float:
    """Bytes: no plan holds fewer, however small its parts are. No more than the base is known if the time is over first. ``OptionError``
    if there is no plan with parts of any size."""
    program = CompactProgram(question, parts, fine=True)
    found = solver.solve(program.least_peak())
    if found.is_impossible:
        raise feasible.impossible(question, parts, solver)
    return float(question.base) if found.values is None else found.cost * program.unit


def in_equal_parts(question: Question, per_part: int, solver: Solver, least: float | None = None) -> StepPlan:
    """The plan of a question. ``per_part``, ``solver``, errors: as for ``checkflow.planned``; ``least``: its ``least_peak``, if
    that is known."""
    parts = cut(question.tensors, per_part)
    if least is None:
        least = least_peak(question, parts, solver)
    while True:
        program = CompactProgram(question, parts)
        start = greedy(question, parts, least)
        first = _solved(program, program.least_peak(), start, solver.part(_SHARE))
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
    most: float | None = question.memory
    if most is None:
        most = usage.peak(question, program.plan(first.values)) * (1 + SLACK)
    made = calmest(question, program, most, solver, first.values) or program.plan(first.values)
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
    program: CompactProgram, asked: LinearProgram, start: Sequence[PlannedPart] | None, solver: Solver
) -> Solution:
    """The solution of one question, or ``start`` if the time is over first."""
    values = None if start is None else program.values(start, usage.peak(program.question, start))
    found = solver.solve(asked, gap=GAP, start=values)
    if found.values is None and values is not None and not found.is_impossible:
        return replace(found, values=np.array(values))
    return found
