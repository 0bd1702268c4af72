"""The order of an epoch's items, and the random numbers of an item. Both follow from the seed, the epoch and the item alone: they are the
same on every rank, after every restart, and on every version of numpy.

All numbers are numpy's Philox4x64, a counter-based generator: its key is (seed, epoch), and the item is a part of its counter, so that no
two streams ever meet. Only its raw numbers are used for the order, because numpy promises that these stay the same; of the methods of
``numpy.random.Generator`` it does not.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_BLOCK = 1 << 16  # items that are numbered at a time
# The last word of the counter: what a stream is for. The order's own stream begins at 0.
_DRAWS, _PAIR = 1, 2


def order(seed: int, epoch: int, length: int, shuffle: bool = True) -> np.ndarray:
    """The items of an epoch in the order in which they are trained: a permutation of ``range(length)``, int32 of shape ``(length,)``
    (int64 beyond 2**31 items). The source's own order unless ``shuffle``. Takes at most 12 bytes of memory an item, and holds 4.

    Each item gets a random number of 64 bits, whose lowest bits are replaced by the item's own number: sorted, they are the order."""
    dtype = _dtype(length)
    if not shuffle:
        return np.arange(length, dtype=dtype)
    bits = np.uint64(max(length - 1, 1).bit_length())
    keys = np.random.Philox(key=[seed, epoch]).random_raw(length)
    keys >>= bits
    keys <<= bits
    for at in range(0, length, _BLOCK):
        stop = min(at + _BLOCK, length)
        keys[at:stop] |= np.arange(at, stop, dtype=np.uint64)
    keys.sort()
    keys &= (np.uint64(1) << bits) - np.uint64(1)
    return keys.astype(dtype)


def _dtype(length: int) -> type[np.signedinteger]:
    """The smallest type that has the number of each of so many items."""
    return np.int32 if length <= 1 << 31 else np.int64


def item_seed(seed: int, epoch: int, item: int) -> tuple[int, int]:
    """The seed pair of an item in an epoch, for ``tf.random.stateless_uniform`` and the like: two numbers from 0 to 2**31 - 1."""
    first = int(_philox(seed, epoch, item, _PAIR).random_raw())
    return first >> 33, first & 0x7FFFFFFF


def item_rng(seed: int, epoch: int, item: int) -> ItemGenerator:
    """A new generator for an item in an epoch."""
    return ItemGenerator(seed, epoch, item)


class ItemGenerator(np.random.Generator):
    """numpy's ``Generator`` for one item in one epoch, with the seed pair of the same item for operations that take one."""

    def __init__(self, seed: int, epoch: int, item: int) -> None:
        super().__init__(_philox(seed, epoch, item, _DRAWS))
        self._keys = seed, epoch, item

    @property
    def seed_pair(self) -> tuple[int, int]:
        """Two numbers from 0 to 2**31 - 1, for ``tf.random.stateless_*``: ``seed=rng.seed_pair``. Drawing from the generator does not
        change them."""
        return item_seed(*self._keys)

    def __reduce__(self) -> Any:
        return ItemGenerator, self._keys


def _philox(seed: int, epoch: int, item: int, purpose: int) -> np.random.Philox:
    return np.random.Philox(key=[seed, epoch], counter=[0, 0, item, purpose])
