"""A plan of a step: the window in which each part of a checkpoint is copied, and the one in which it is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deepfreeze.plan.step import usage
from deepfreeze.plan.step.parts import PlannedPart
from deepfreeze.plan.step.question import Question


@dataclass(frozen=True)
class StepPlan:
    """A plan that keeps all rules of its question.

    - ``parts``: of all tensors, in order.
    - ``bound``: no plan holds fewer bytes, as far as the solver has proved; of a plan with equal parts, none with such parts.
    - ``fine_bound``: no plan holds fewer bytes, however its parts are cut.
    - ``greedy``: bytes that the greedy plan with equal parts holds, None if it finds none.
    - ``is_best``: False if the solver's time was over before it was as near to the bound as it was asked to be.

    ``bound``, ``fine_bound`` and ``greedy`` count base and copies together, as ``peak`` does."""

    question: Question
    parts: tuple[PlannedPart, ...]
    bound: float
    fine_bound: float
    greedy: int | None
    is_best: bool

    @property
    def peak(self) -> int:
        """The most bytes that copies and base hold together."""
        return usage.peak(self.question, self.parts)

    @property
    def extra(self) -> int:
        """The bytes of ``peak`` beyond those that are in memory without copies."""
        return self.peak - self.question.base

    @property
    def gap(self) -> float:
        """The part of the peak by which it may be above the least one there is (``bound``)."""
        return max(0.0, 1 - self.bound / self.peak) if self.peak else 0.0

    @property
    def share_of_rate(self) -> float:
        """The part of the bytes that the store takes in a period that is used."""
        return self.question.nbytes / int(usage.capacities(self.question).sum())

    @property
    def end(self) -> int:
        """The last window in which anything is written."""
        return max((part.write for part in self.parts), default=0)


def end_seconds(question: Question, parts: Sequence[PlannedPart]) -> float:
    """Seconds from the end of the captured step to the end of the last window in which anything is written. Negative if all is written
    before."""
    last = max((part.write for part in parts), default=-1)
    if last < 0:
        return -sum(question.window(number).seconds for number in range(last + 1, 0))
    return sum(question.window(number).seconds for number in range(last + 1))
