"""Which rank saves which bytes.

The model file is dealt out in pages of 4 KiB: every tensor begins a page, and the rank that saves a tensor's last byte also
writes the padding up to the end of that page. So no two ranks ever write bytes of one page. The clients of some network file systems
(NFS, cifs) write whole pages, and would lose bytes if two ranks wrote parts of one page.

``per_layer``, the default, lets each rank capture its share of the layers while back-propagation of the layers below goes on. It deals in
units of an eighth of a rank's share:

- A tensor that has a unit for each rank is dealt out by itself, one range per rank: all ranks capture it at the same time.
- The smaller tensors are laid one behind the other, in the order of the file, and the ranks take turns. A turn is one unit; after the last
  rank comes the first one again. So each stretch of layers as long as an eighth of the file is captured by all ranks alike, and a
  rank's pieces don't shrink with the square of the number of ranks.
- The smallest tensors (below 64 KiB) are laid one behind the other too. Each rank takes one range of them.

Where there are few ranks a unit is smaller, as if there were 64, because a unit that one rank captures while the others do not holds the
others up. Units below 64 KiB would cost more time than they hide, so there they end, unless the share's eighth is smaller.

``contiguous`` deals out all tensors as one row: each rank writes one range of the file. Its drawback: a rank whose range is of the lowest
layers captures it at the end of back-propagation, when no computation is left to hide the capture.

Both give each rank the same number of pages, plus or minus one, unless rank 0 alone saves more than an even share.

The result follows from the specs and the number of ranks alone: every rank computes the same plan without talking to another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from deepfreeze.format.tensors import RANK_LOCAL, REPLICATED, TensorSpec

UNIT = 4096  # bytes of a page
SMALL = 64 * 1024  # bytes; tensors below this size are dealt out together
_TURNS = 8  # units of a rank's share, at least
_FEW = 64  # fewer ranks than these take more turns: units are as small as those of so many ranks
_TOGETHER = 4  # pages of the small tensors that a rank takes, at least; fewer would put hundreds of ranks into a few MiB of the file


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


# (specs, number of ranks) -> the shards of each rank. The training thread of every rank calls it once for each installation of captures,
# before the train function is traced, with the same arguments on all ranks. The result must follow from these alone: ranks that differ in
# it would leave bytes out, or write them twice.
Placement = Callable[[Sequence[TensorSpec], int], list[list[Shard]]]


def in_file_order(specs: Sequence[TensorSpec]) -> list[int]:
    """The indices of the tensors that are in the model file, in the order of their bytes there: first the small replicated tensors, then
    the large ones, then those that rank 0 alone saves; within each group in the order of ``specs``. Empty tensors are left out."""
    inside = [i for i, spec in enumerate(specs) if spec.role in (REPLICATED, RANK_LOCAL) and spec.nbytes]
    return sorted(inside, key=lambda i: (specs[i].role == RANK_LOCAL, not _is_small(specs[i]), i))


def per_layer(specs: Sequence[TensorSpec], world: int) -> list[list[Shard]]:
    """The shards of each rank (``world`` lists, each in the order of ``specs``), in units as the module says.

    Rank-local tensors are never cut: rank 0 saves them. Per-rank tensors are not in the model file, and have no shards.

    With 64 ranks or more, a rank's replicated bytes are at most 9 ranges of the file: 8 of large tensors, 1 of small ones. A range
    is one shard for each tensor that it touches, so all ranks together have at most 9 shards per rank and 1 per tensor.
    """
    replicated = [i for i in in_file_order(specs) if specs[i].role == REPLICATED]
    size = [pages(spec.nbytes) for spec in specs]
    total = sum(size[i] for i in replicated)
    units = min(total, max(_TURNS * world, min(_TURNS * _FEW, total * UNIT // SMALL)))  # of the whole file
    small = [i for i in replicated if _is_small(specs[i])]
    large = [i for i in replicated if not _is_small(specs[i])]
    for_all = [i for i in large if size[i] * units >= world * total]
    by_turns = [i for i in large if size[i] * units < world * total]
    deal = _Deal(specs, world)
    # The tensors that all ranks take come last, because they level what is uneven so far.
    deal.row(small, least=min(_TOGETHER, max(1, total // world)))
    turns = -(-sum(size[i] for i in by_turns) * units // (world * max(1, total)))
    deal.row(by_turns, turns, least=total // units if for_all else 1)
    for i in for_all:
        deal.row([i])
    return deal.shards


def contiguous(specs: Sequence[TensorSpec], world: int) -> list[list[Shard]]:
    """The shards of each rank (``world`` lists, each in the order of ``specs``): of all replicated tensors together, in the order of the
    file, a range per rank.

    The other tensors are placed as by ``per_layer``. The rank-local ones count as part of rank 0's share.
    """
    deal = _Deal(specs, world)
    deal.row([i for i in in_file_order(specs) if specs[i].role == REPLICATED])
    return deal.shards


PLACEMENTS: dict[str, Placement] = {"per_layer": per_layer, "contiguous": contiguous}


def _is_small(spec: TensorSpec) -> bool:
    return spec.nbytes < SMALL


def pages(nbytes: int) -> int:
    """The number of pages that a tensor of ``nbytes`` takes in the file."""
    return -(-nbytes // UNIT)


class _Deal:
    """The shards that each rank has so far. Rank 0 begins with the rank-local tensors."""

    def __init__(self, specs: Sequence[TensorSpec], world: int) -> None:
        self._specs = specs
        own = [i for i, spec in enumerate(specs) if spec.role == RANK_LOCAL and spec.nbytes]
        self._shards: list[list[Shard]] = [[] for _ in range(world)]
        self._shards[0] = [Shard(i, 0, specs[i].nbytes) for i in own]
        self._load = np.zeros(world, np.int64)  # pages of each rank
        self._load[0] = sum(pages(specs[i].nbytes) for i in own)

    @property
    def shards(self) -> list[list[Shard]]:
        """Of each rank, in the order of the specs."""
        return [sorted(shards, key=lambda shard: (shard.tensor, shard.start)) for shards in self._shards]

    def row(self, tensors: Sequence[int], turns: int = 1, least: int = 1) -> None:
        """Deals out the tensors, laid one behind the other, so that all ranks' loads become as level as they can. The ranks take
        ``turns`` turns, in each of which every rank takes one range of pages, in the order of the ranks. ``tensors``: indices in the
        specs; ``least``: pages that a rank takes at least, where the row is too short for all ranks."""
        sizes = np.array([pages(self._specs[i].nbytes) for i in tensors], np.int64)
        stops = np.cumsum(sizes)  # of the tensors, in pages of the row
        total = int(sizes.sum())
        if not total:
            return
        takers = np.sort(np.argsort(self._load, kind="stable")[: -(-total // least)])
        counts = np.zeros_like(self._load)
        counts[takers] = _level(self._load[takers], total)
        self._load += counts
        # Pages of each range, the ranges in the order of the row: an element per turn and rank.
        ranges = np.diff(np.arange(turns + 1)[:, None] * counts // turns, axis=0).ravel()
        ends = np.cumsum(ranges)
        cuts = np.union1d(ends[ranges > 0], stops)
        begins = np.append(0, cuts[:-1])
        ranks = np.searchsorted(ends, begins, side="right") % len(counts)
        numbers = np.searchsorted(stops, begins, side="right")  # of the tensors in the row
        # A rank that takes two turns in succession, such as a single rank, has one range.
        first = np.append(True, (np.diff(ranks) != 0) | (np.diff(numbers) != 0))
        last = np.append(first[1:], True)
        columns = ranks[first], numbers[first], begins[first], cuts[last]
        for rank, number, begin, end in zip(*(column.tolist() for column in columns), strict=True):
            tensor, at = tensors[number], int(stops[number] - sizes[number])
            shard = Shard(tensor, (begin - at) * UNIT, min((end - at) * UNIT, self._specs[tensor].nbytes))
            self._shards[rank].append(shard)


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
