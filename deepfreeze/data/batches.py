"""The batches of one rank in one epoch, or in what is left of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from deepfreeze.data.dealing import Dealing
from deepfreeze.data.nested import leaves, mapped, stacked
from deepfreeze.data.order import ItemGenerator, item_rng
from deepfreeze.data.source import Source
from deepfreeze.errors import OptionError

Augment = Callable[[Any, ItemGenerator], Any]


@dataclass(frozen=True, eq=False)
class Batches:
    """The batches number 0 to ``len() - 1`` of ``rank`` in an epoch, from the place ``done`` of its ``order`` on (None: the source's own
    order). ``weighted``: whether each batch has sample weights. Any thread may make a batch."""

    source: Source
    order: np.ndarray | None
    dealing: Dealing
    rank: int
    seed: int
    epoch: int
    done: int
    augment: Augment | None
    weighted: bool

    def __len__(self) -> int:
        return self.dealing.batches(self.done)

    @property
    def uneven(self) -> str:
        """Why the batches have sample weights, for the message to a program that has shown Keras batches without."""
        dealing = self.dealing
        items = f"{dealing.length - self.done} items, dealt {dealing.global_batch} at a time"
        return f"batches with sample weights: epoch {self.epoch} has {items}, and {dealing.ranks} ranks do not divide the last batch"

    @property
    def whole(self) -> Batches:
        """The batches of the whole epoch, trained ones too."""
        return replace(self, done=0)

    def make(self, number: int) -> Any:
        """The batch number ``number``. ``OptionError`` if it needs sample weights and is not (x, y) or (x, y, sample_weight)."""
        share = self.dealing.share(self.done, number, self.rank)
        numbers = np.arange(share.start, share.stop) if self.order is None else self.order[share.start : share.stop]
        batch = self._read(numbers)
        return _weighted(batch, share.weight) if self.weighted else batch

    def _read(self, numbers: np.ndarray) -> Any:
        if self.augment is None:
            return self.source.batch(numbers)
        if self.source.batched:
            return self._augmented(self.source.batch(numbers), int(numbers[0]))
        return stacked([self._augmented(self.source.item(number), number) for number in numbers.tolist()])

    def _augmented(self, item: Any, number: int) -> Any:
        assert self.augment is not None
        return self.augment(item, item_rng(self.seed, self.epoch, number))


def _weighted(batch: Any, weight: float) -> tuple[Any, Any, Any]:
    if not isinstance(batch, (tuple, list)) or len(batch) not in (2, 3):
        parts = f"a {type(batch).__name__}" + (f" of {len(batch)}" if isinstance(batch, (tuple, list)) else "")
        raise OptionError(
            where='last="weighted"',
            expected="items (x, y) or (x, y, sample_weight), for the last batch of an epoch is dealt unevenly over the ranks",
            found=parts,
            todo='give items with a target, or pass last="drop"',
        )
    factor = np.float32(weight)
    if len(batch) == 3 and batch[2] is not None:
        return batch[0], batch[1], mapped(lambda weights: np.asarray(weights) * factor, batch[2])
    rows = len(next(leaf for _, leaf in leaves(batch[0])))
    return batch[0], batch[1], np.full(rows, factor)
