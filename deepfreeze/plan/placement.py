"""Which rank saves which bytes.

The model file is dealt out in pages of 4 KiB: every tensor begins a page, and the rank that saves a tensor's last byte also
writes the padding up to the end of that page. So no two ranks ever write bytes of one page. The clients of some network file systems
(NFS, cifs) write whole pages, and would lose bytes if two ranks wrote parts of one page.

``per_layer``, the default, deals out each large tensor by itself, one contiguous range of pages per rank: each rank captures 1/N
of every layer while back-propagation of the layers below goes on. The small tensors are laid one behind the other, in the order of the
file, and dealt out as if they were one tensor. ``contiguous`` deals out all tensors in this way: each rank writes one range of the file.
Its drawback: a rank whose range is of the lowest layers captures it at the end of back-propagation, when no computation is left to
hide the capture.

Both give each rank the same number of pages, plus or minus one, unless rank 0 alone saves more than an even share.

The result follows from the specs and the number of ranks alone: every rank computes the same plan without talking to another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from deepfreeze.format.tensors import RANK_LOCAL, REPLICATED, TensorSpec

UNIT = 4096  # bytes of a page
SMALL = 64 * 1024  # bytes; a tensor below this size is not cut by itself: that would cost more time than it hides


@dataclass(frozen=True)
class Shard:
    """The bytes ``start`` to ``stop`` (exclusive) of a tensor. ``tensor``: its index in the specs."""

    tensor: int
    start: int
    stop: int

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.stop - self.start


# (specs, number of ranks) -> the shards of each rank.
Placement = Callable[[Sequence[TensorSpec], int], list[list[Shard]]]


def in_file_order(specs: Sequence[TensorSpec]) -> list[int]:
    """The indices of the tensors that are in the model file, in the order of their bytes there: first the small replicated tensors, then
    the large ones, then those that rank 0 alone saves; within each group in the order of ``specs``. Empty tensors are left out."""
    inside = [i for i, spec in enumerate(specs) if spec.role in (REPLICATED, RANK_LOCAL) and spec.nbytes]
    return sorted(inside, key=lambda i: (specs[i].role == RANK_LOCAL, not _is_small(specs[i]), i))


def per_layer(specs: Sequence[TensorSpec], world: int) -> list[list[Shard]]:
    """The shards of each rank (``world`` lists, each in the order of ``specs``): of each large replicated tensor a range per rank.

    Rank-local tensors are never cut: rank 0 saves them. Per-rank tensors are not in the model file, and have no shards.
    """
    replicated = [i for i in in_file_order(specs) if specs[i].role == REPLICATED]
    small = [i for i in replicated if _is_small(specs[i])]
    return _dealt(specs, world, [small, *([i] for i in replicated if not _is_small(specs[i]))])


def contiguous(specs: Sequence[TensorSpec], world: int) -> list[list[Shard]]:
    """The shards of each rank (``world`` lists, each in the order of ``specs``): of all replicated tensors together, in the order of the
    file, a range per rank.

    The other tensors are placed as by ``per_layer``. The rank-local ones count as part of rank 0's share.
    """
    return _dealt(specs, world, [[i for i in in_file_order(specs) if specs[i].role == REPLICATED]])


PLACEMENTS: dict[str, Placement] = {"per_layer": per_layer, "contiguous": contiguous}


def _is_small(spec: TensorSpec) -> bool:
    return spec.nbytes < SMALL


def pages(nbytes: int) -> int:
    """The number of pages that a tensor of ``nbytes`` takes in the file."""
    return -(-nbytes // UNIT)


def _dealt(specs: Sequence[TensorSpec], world: int, rows: Sequence[Sequence[int]]) -> list[list[Shard]]:
    """Gives rank 0 the rank-local tensors, then cuts each row into one range of pages per rank, in the order of the ranks. ``rows``: lists
    of indices of tensors; the tensors of a row are laid one behind the other."""
    shards: list[list[Shard]] = [[] for _ in range(world)]
    load = np.zeros(world, np.int64)  # pages that each rank has so far
    for i, spec in enumerate(specs):
        if spec.role == RANK_LOCAL and spec.nbytes:
            shards[0].append(Shard(i, 0, spec.nbytes))
            load[0] += pages(spec.nbytes)
    for row in rows:
        counts = _level(load, sum(pages(specs[i].nbytes) for i in row))
        load += counts
        ends = np.cumsum(counts)
        rank = at = 0  # ``at``: pages of the row that are dealt out so far
        for i in row:
            begin, end = at, at + pages(specs[i].nbytes)
            while at < end:
                while ends[rank] <= at:
                    rank += 1
                stop = min(end, int(ends[rank]))
                shards[rank].append(Shard(i, (at - begin) * UNIT, min((stop - begin) * UNIT, specs[i].nbytes)))
                at = stop
    for of_rank in shards:
        of_rank.sort(key=lambda shard: shard.tensor)
    return shards


def _level(load: np.ndarray, count: int) -> np.ndarray:
    """How many of ``count`` pages each rank takes so that the highest load is as low as possible. ``load`` and the result: pages, int64,
    shape ``(ranks,)``. As water fills vessels of different levels: the lowest ranks are filled up to one common level."""

    def missing(level: int) -> np.ndarray:
        return np.maximum(level - load, 0)

    low, high = int(load.min()), int(load.max()) + count // len(load) + 1
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if missing(middle).sum() <= count else (low, middle - 1)
    counts = missing(low)
    spare = count - int(counts.sum())
    counts[np.argsort(load + counts, kind="stable")[:spare]] += 1
    return counts
