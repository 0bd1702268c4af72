"""In which groups the tensors of a training state are captured, and from which point of the step on.

The tensors of a group are captured by one op. Few groups cost a step little that captures nothing; many groups are captured earlier,
because an op waits until all of its tensors are updated. A planner is a function that makes the groups; ``neighbours`` is the one that
trainings use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from deepfreeze.format.tensors import REPLICATED, TensorSpec

# About how many groups there are: few enough to cost nothing, enough for upper layers not to wait for lower ones.
_GROUPS = 16


class Point(Enum):
    """From which point of a step on a tensor has the value that the step's checkpoint saves."""

    UPDATE = "update"  # the optimizer has written to the tensor
    STEP = "step"  # ``train_step`` has ended


@dataclass(frozen=True)
class CaptureGroup:
    """Tensors that are captured together. ``tensors``: their indices in the list that was planned for, in the order in which a step
    updates them; ``after``: the point of the step from which on they may be copied."""

    tensors: tuple[int, ...]
    after: Point


# (specs of all tensors) -> the groups. Each tensor is in one group, a replicated one at ``UPDATE`` or ``STEP``, another one at ``STEP``.
# Called twice for each installation of captures, by the training thread of every rank: before the train function is traced, and when
# the end of the first step is traced (or is over, where the graph does not capture): tensors that are not replicated may have been added at
# the end of the specs by then. The result must follow from
# the specs alone, because all ranks must trace the same graph.
CapturePlan = Callable[[Sequence[TensorSpec]], list[CaptureGroup]]


def neighbours(specs: Sequence[TensorSpec]) -> list[CaptureGroup]:
    """About 16 groups of replicated tensors that are neighbours in ``specs``, of about the same number of bytes, captured after the update;
    and one group of all other tensors at the end of the step. The result depends on the specs alone, so it is the same on every rank.
    More tensors that are not replicated, at the end of ``specs``, change the last group alone."""
    replicated = [i for i, spec in enumerate(specs) if spec.role == REPLICATED]
    limit = max(1, sum(specs[i].nbytes for i in replicated) // _GROUPS)
    groups: list[list[int]] = []
    filled = limit
    for i in replicated:
        if filled >= limit:
            groups.append([])
            filled = 0
        groups[-1].append(i)
        filled += specs[i].nbytes
    others = tuple(i for i, spec in enumerate(specs) if spec.role != REPLICATED)
    return [*(CaptureGroup(tuple(group), Point.UPDATE) for group in groups), CaptureGroup(others, Point.STEP)]
