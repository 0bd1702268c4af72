"""Where in its data a training stands."""

from __future__ import annotations

from typing import NamedTuple

from deepfreeze.data.dealing import Dealing


class Place(NamedTuple):
    """A place in the data: ``epoch``, from 0, and how many ``items`` of its order are trained."""

    epoch: int
    items: int


class Standing:
    """The epoch under way: how much of it is trained, and where the next pass over the data begins. Batches are counted from where this
    process has begun the epoch, which is behind those that were trained before a restart. Not thread-safe.

    ``told``: whether anybody tells what is trained of the present pass; then nothing else counts as trained. ``in_loop``: whether a loop
    tells of each step in all passes."""

    def __init__(self, epoch: int = 0, items: int = 0) -> None:
        """``items`` of ``epoch`` are trained already."""
        self._epoch, self._opened = epoch, False
        self._batches, self.told, self.in_loop = 0, False, False
        self._begun_at = Place(epoch, items)

    def advance(self, batches: int) -> None:
        """So many more ``batches`` of the epoch under way are trained."""
        self._batches, self.told = self._batches + batches, True

    def place(self, epoch: int, batches: int, dealing: Dealing) -> Place:
        """The place when so many ``batches`` of ``epoch`` are trained: the beginning of the next epoch if none is left."""
        begun = self._begun_at.items if epoch == self._begun_at.epoch else 0
        items = dealing.place(begun, batches)
        return Place(epoch, items) if dealing.batches(items) else Place(epoch + 1, 0)

    def now(self, dealing: Dealing) -> Place:
        """What is trained by now."""
        return self.place(self._epoch, self._batches, dealing)

    def upcoming(self, dealing: Dealing) -> Place:
        """Where the next pass begins: behind what is trained; where nobody tells of it, with the epoch after the last pass."""
        if self._opened and not self.told:
            return Place(self._epoch + 1, 0)
        return self.now(dealing)

    def open(self, dealing: Dealing) -> Place:
        """A pass begins. Returns its first place."""
        place = self.upcoming(dealing)
        if place.items:
            self._begun_at = place
        self._epoch, self._batches, self._opened, self.told = place.epoch, 0, True, self.in_loop
        return place
