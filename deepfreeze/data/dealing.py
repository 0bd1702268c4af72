"""Which items of an epoch's order a rank trains in which step. Pure.

A step of the training takes the next ``global_batch`` items of the order, and each rank a share of them, in the order of the ranks. So
what is left of an epoch does not depend on how many ranks have trained the rest, and any number of ranks deals it anew.

The last step of an epoch may have fewer items. Horovod takes the mean over the ranks, and Keras on each rank the mean over the rows of its
batch. For the whole to be the mean over the items, each row is given a weight.
"""

from __future__ import annotations

from dataclasses import dataclass

from deepfreeze import arguments
from deepfreeze.errors import OptionError

#: What becomes of the items at the end of an epoch that do not fill a global batch.
LAST = ("weighted", "drop")


@dataclass(frozen=True)
class Share:
    """The items of one rank in one step: those at the places ``start`` to ``stop`` (exclusive) of the epoch's order. ``weight``: the
    sample weight of each of them, 0 where the rank has a copy of another rank's item."""

    start: int
    stop: int
    weight: float = 1.0


@dataclass(frozen=True)
class Dealing:
    """How the ``length`` items of each epoch are dealt: ``global_batch`` at a step, over ``ranks``. ``last``: one of ``LAST``.
    ``OptionError`` if the ranks do not divide the global batch, or no global batch is ever filled and the rest is dropped."""

    length: int
    ranks: int
    global_batch: int
    last: str = "weighted"

    def __post_init__(self) -> None:
        arguments.one_of("last=", self.last, LAST)
        if self.global_batch % self.ranks:
            raise OptionError(
                where="global_batch=",
                expected=f"a multiple of the number of ranks, {self.ranks}",
                found=str(self.global_batch),
                todo=f"pass a multiple of {self.ranks}, or start another number of ranks",
            )
        if self.batches(0) == 0:
            raise OptionError(
                where='last="drop"',
                expected=f"at least {self.global_batch} items, a global batch",
                found=str(self.length),
                todo='pass a smaller batch, or last="weighted"',
            )

    def batches(self, done: int) -> int:
        """How many steps the epoch has from the place ``done`` of its order on. Each rank has a batch in each of them."""
        left = self.length - done
        return left // self.global_batch if self.last == "drop" else -(-left // self.global_batch)

    def place(self, done: int, batches: int) -> int:
        """The place in the order after so many ``batches`` from the place ``done`` on."""
        return min(done + batches * self.global_batch, self.length)

    def left_out(self, done: int) -> int:
        """How many items no step trains, if the epoch goes on from ``done``."""
        return (self.length - done) % self.global_batch if self.last == "drop" else 0

    def needs_weights(self, done: int) -> bool:
        """Whether the last step is dealt unevenly, if the epoch goes on from ``done``: its rows then have other weights than 1."""
        return self.last == "weighted" and (self.length - done) % self.global_batch % self.ranks != 0

    def share(self, done: int, step: int, rank: int) -> Share:
        """The share of ``rank`` in the step number ``step``, from 0, from the place ``done`` on.

        Of m items on R ranks a rank has n rows. The mean over the ranks of their means is sum(weight * loss / n) / R, which is
        sum(loss) / m with the weight R * n / m."""
        start = self.place(done, step)
        items = self.place(done, step + 1) - start
        each, more = divmod(items, self.ranks)
        rows = each + (rank < more)
        begin = start + rank * each + min(rank, more)
        if rows == 0:
            return Share(start, start + 1, 0.0)
        return Share(begin, begin + rows, self.ranks * rows / items)
