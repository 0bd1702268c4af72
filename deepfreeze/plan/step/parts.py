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


def in_order(
    copied: Sequence[tuple[int, int]], written: Sequence[tuple[int, int]], direct: Sequence[tuple[int, int]], whole: int
) -> list[tuple[int | None, int, int]]:
    """(window of the copy, window of the write, number): runs of a tensor's bytes, or of its equal parts, that are moved in the same
    windows. What is copied first is written first. Runs without a copy (None) come last.

    ``copied``, ``written``: (window, number by its end) of copies, in the order of windows; ``direct``: the same of what is written without
    a copy; ``whole``: the number of all together."""
    with_copy = whole if not direct else copied[-1][1] if copied else 0
    runs: list[tuple[int | None, int, int]] = []
    writes = iter(_changes(written, with_copy))
    write, room = next(writes, (0, 0))
    for copy, number in _changes(copied, with_copy):
        while number:
            if not room:
                write, room = next(writes)
            moved = min(number, room)
            runs.append((copy, write, moved))
            number, room = number - moved, room - moved
    return [*runs, *((None, window, number) for window, number in _changes(direct, whole - with_copy))]


def _changes(ends: Sequence[tuple[int, int]], whole: int) -> list[tuple[int, int]]:
    """(window, number that is moved in it), of numbers by the end of windows. The last window has what is left of ``whole``."""
    made, before = [], 0
    for at, (window, end) in enumerate(ends):
        end = whole if at == len(ends) - 1 else min(whole, end)
        if end > before:
            made.append((window, end - before))
            before = end
    return made


def groups(tensors: Sequence[SavedTensor], at_least: int) -> list[list[int]]:
    """The indices of tensors that are treated as one: those that are updated in one window, each time that they have fewer than
    ``at_least`` bytes together; larger tensors stay alone. The order is that of the updates."""
    made: list[list[int]] = []
    nbytes = 0  # of the last group
    for index in sorted(range(len(tensors)), key=lambda one: (tensors[one].update, tensors[one].ready or 0)):
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
