"""Which part of the ranks' weights is compared at which checkpoint. The parts follow from counts and from what the ranks have agreed on, so
all ranks compare the same bytes."""

from __future__ import annotations

from dataclasses import dataclass

# So many first checkpoints of a training are compared whole: ranks that begin alike and do not average their gradients differ only after
# their first update.
_FIRST_WHOLE = 2


@dataclass(frozen=True)
class Compared:
    """Part ``number`` (from 0) of ``of`` equal parts of the replicated bytes."""

    number: int
    of: int

    @property
    def whole(self) -> bool:
        """Whether it is all bytes."""
        return self.of == 1


WHOLE = Compared(0, 1)


class Comparisons:
    """The parts of one training, from its first checkpoint on, on one rank. A training may be several ``fit``s of one model."""

    def __init__(self, parts: int) -> None:
        """``parts``: into how many parts the weights are divided; 0: only the first two checkpoints are compared."""
        self._parts, self._saves, self._next = parts, 0, 0
        self._back: list[Compared] = []

    @property
    def begins(self) -> bool:
        """Whether one of the first whole comparisons is still to come."""
        return self._saves < _FIRST_WHOLE

    def next(self, known: bool) -> Compared | None:
        """What is compared at the next checkpoint; None: nothing. To be called once for each checkpoint, on every rank. ``known``: whether
        the ranks have agreed that a difference between them is known; then everything is compared until it is gone."""
        first = self.begins
        self._saves += 1
        if first:
            return WHOLE
        if not self._parts:
            return None
        if known:
            return WHOLE
        if self._back:
            return self._back.pop(0)
        number, self._next = self._next, (self._next + 1) % self._parts
        return Compared(number, self._parts)

    def give_back(self, part: Compared | None) -> None:
        """The checkpoint for which ``next`` has returned ``part`` was given up before the ranks were compared. To be called on every rank
        after the same execution: the part comes next."""
        if part is WHOLE and self._saves <= _FIRST_WHOLE:
            self._saves -= 1
        elif part is not None and part is not WHOLE:
            self._back.append(part)
