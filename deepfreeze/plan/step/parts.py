"""Parts of saved tensors: how tensors are cut into them, and when each is copied and written."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from deepfreeze.plan.step.question import SavedTensor


@dataclass(frozen=True)
class PlannedPart:
    """A part of a saved tensor: ``nbytes`` from ``begin`` on. ``tensor``: the tensor's index; ``copy``: the window in which it is copied,
    None if it is written without a copy; ``write``: the window in which it is written."""

    tensor: int
    begin: int
    nbytes: int
    copy: int | None
    write: int


def cut(tensors: Sequence[SavedTensor], per_part: int) -> list[int]:
    """Into how many equal parts each tensor is cut, none of which has more than ``per_part`` bytes (Algorithm 1 of the paper)."""
    return [max(1, math.ceil(tensor.nbytes / per_part)) for tensor in tensors]


def pieces(nbytes: int, parts: int) -> list[tuple[int, int]]:
    """(begin, bytes) of each of so many parts. They differ by a byte at most."""
    ends = [nbytes * (n + 1) // parts for n in range(parts)]
    return [(begin, end - begin) for begin, end in zip([0, *ends], ends, strict=False)]


def groups(tensors: Sequence[SavedTensor], at_least: int) -> list[list[int]]:
    """The indices of tensors that are treated as one: those that are updated in one window, each time that they have fewer than
    ``at_least`` bytes together; larger tensors stay alone. The order is that of the updates."""
    made: list[list[int]] = []
    nbytes = 0  # of the last group
    for index in sorted(range(len(tensors)), key=lambda one: (tensors[one].update, tensors[one].ready is not None)):
        tensor, before = tensors[index], tensors[made[-1][0]] if made else None
        if (
            before is not None
            and (before.update, before.ready) == (tensor.update, tensor.ready)
            and max(nbytes, tensor.nbytes) < at_least
        ):
            made[-1].append(index)
            nbytes += tensor.nbytes
        else:
            made.append([index])
            nbytes = tensor.nbytes
    return made


def joined(tensors: Sequence[SavedTensor], at_least: int) -> list[SavedTensor]:
    """The tensors with each of the ``groups`` as one of them."""
    return [_one([tensors[index] for index in group]) for group in groups(tensors, at_least)]


def _one(group: Sequence[SavedTensor]) -> SavedTensor:
    first, more = group[0], len(group) - 1
    # The first one may be made of several tensors itself.
    name = f"{first.name.split(' and ')[0]} and {more} more" if more else first.name
    return replace(first, name=name, nbytes=sum(tensor.nbytes for tensor in group))
