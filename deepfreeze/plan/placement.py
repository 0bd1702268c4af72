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

A store may have a **granule** that is larger than a page: bytes that it locks, or writes, as a whole (``choose_granule``). The large
tensors begin at a multiple of it in the file. ``per_layer`` then deals in whole granules, as many as leave enough pages to level the
ranks within 2 %. These pages are the end of the large tensors, less than a granule for each rank. ``contiguous`` moves a cut to a granule
that is near enough to keep the balance within 2 %.

The result follows from the specs, the number of ranks and the granule alone: every rank computes the same plan without talking to another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from deepfreeze.format.tensors import RANK_LOCAL, REPLICATED, TensorSpec

UNIT = 4096  # bytes of a page
SMALL = 64 * 1024  # bytes; tensors below this size are dealt out together
_TURNS = 8  # units of a rank's share, at least
_FEW = 64  # fewer ranks than these take more turns: units are as small as those of so many ranks
_LARGEST = 64 << 20  # bytes of a granule, at most
_TOLERANCE = 50  # ranks' shares may differ by this part of a share (2 %), where that keeps granules whole
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


class Placement(Protocol):
    """Which rank saves which bytes, as a function."""

    def __call__(self, specs: Sequence[TensorSpec], world: int, granule: int = UNIT) -> list[list[Shard]]:
        """Returns the shards of each of ``world`` ranks. ``granule``: bytes, as ``choose_granule`` returns them.

        The training thread of every rank calls it once for each installation of captures, before the train function is traced, with the
        same arguments on all ranks. The result must follow from these alone: ranks that differ in it would leave bytes out, or write them
        twice."""


def in_file_order(specs: Sequence[TensorSpec]) -> list[int]:
    """The indices of the tensors that are in the model file, in the order of their bytes there: first the small replicated tensors, then
    the large ones, then those that rank 0 alone saves; within each group in the order of ``specs``. Empty tensors are left out."""
    inside = [i for i, spec in enumerate(specs) if spec.role in (REPLICATED, RANK_LOCAL) and spec.nbytes]
    return sorted(inside, key=lambda i: (specs[i].role == RANK_LOCAL, not _is_small(specs[i]), i))


def first_large(specs: Sequence[TensorSpec]) -> int | None:
    """The index of the first large replicated tensor in the order of the file, None if there is none. It begins at a multiple of the
    granule in the file."""
    order = in_file_order(specs)
    return next((i for i in order if specs[i].role == REPLICATED and not _is_small(specs[i])), None)


def choose_granule(specs: Sequence[TensorSpec], world: int, block: int = UNIT, stripe: int | None = None) -> int:
    """The bytes at whose multiples in the file the ranks' shares are cut: the store's stripe if a rank saves at least 8 of them, else the
    store's block if a rank saves at least 8 of these, else a page.

    ``block``, ``stripe``: bytes; ``stripe`` is None for a store without stripes. A size that is not a power of two pages, or is above
    64 MiB, is left out."""
    share = sum(pages(spec.nbytes) for spec in specs if spec.role == REPLICATED) * UNIT // world
    for size in (stripe, block):
        if size is not None and UNIT <= size <= _LARGEST and not size & (size - 1) and share >= _TURNS * size:
            return size if world > 1 else UNIT  # one rank's share is not cut
    return UNIT


def per_layer(specs: Sequence[TensorSpec], world: int, granule: int = UNIT) -> list[list[Shard]]:
    """The shards of each rank (``world`` lists, each in the order of ``specs``), in units as the module says.

    Rank-local tensors are never cut: rank 0 saves them. Per-rank tensors are not in the model file, and have no shards.

    With 64 ranks or more, a rank's replicated bytes are at most 9 ranges of the file: 8 of large tensors, 1 of small ones. A range
    is one shard for each tensor that it touches, so all ranks together have at most 9 shards per rank and 1 per tensor. A granule above a
    page adds 1 range, which levels the ranks. Then at most ``world`` granules of the large tensors have bytes of two ranks or more.
    """
    deal = _Deal(specs, world)
    begins, sizes, step = deal.begins, deal.sizes, granule // UNIT
    total = int(sizes.sum())
    # Units of the whole file, each a granule at least.
    units = max(1, min(total // step, max(_TURNS * world, min(_TURNS * _FEW, total * UNIT // SMALL))))
    small = np.array([_is_small(specs[i]) for i in deal.tensors], bool)
    deal.row(begins[small], sizes[small], least=min(_TOGETHER, max(1, total // world)))
    # The large tensors are dealt out in whole granules. A granule belongs to the tensor that its first page is of.
    base = int(sizes[small].sum())
    whole = deal.whole_granules(total - base, step)
    first = np.minimum(-(-(begins - base) // step), whole)
    granules = np.minimum(-(-(begins + sizes - base) // step), whole) - first
    for_all = ~small & (sizes * units >= world * total)
    by_turns = ~small & ~for_all
    # The tensors that all ranks take come after the others, because they level what is uneven so far.
    turns = -(-int(sizes[by_turns].sum()) * units // (world * max(1, total)))
    least = max(1, total // units // step) if for_all.any() else 1
    deal.row(base + first[by_turns] * step, granules[by_turns], turns, least, step)
    for i in np.flatnonzero(for_all):
        deal.row(base + first[i : i + 1] * step, granules[i : i + 1], step=step)
    deal.row(np.array([base + whole * step]), np.array([total - base - whole * step]))
    return deal.shards


def contiguous(specs: Sequence[TensorSpec], world: int, granule: int = UNIT) -> list[list[Shard]]:
    """The shards of each rank (``world`` lists, each in the order of ``specs``): of all replicated tensors together, in the order of the
    file, a range per rank.

    The other tensors are placed as by ``per_layer``. The rank-local ones count as part of rank 0's share.
    """
    deal = _Deal(specs, world)
    small = sum(pages(specs[i].nbytes) for i in deal.tensors if _is_small(specs[i]))
    deal.row(deal.begins, deal.sizes, near=(small, granule // UNIT))
    return deal.shards


PLACEMENTS: dict[str, Placement] = {"per_layer": per_layer, "contiguous": contiguous}


def _is_small(spec: TensorSpec) -> bool:
    return spec.nbytes < SMALL


def pages(nbytes: int) -> int:
    """The number of pages that a tensor of ``nbytes`` takes in the file."""
    return -(-nbytes // UNIT)


class _Deal:
    """The pages that each rank has so far, of the file's replicated tensors. Rank 0 begins with the rank-local tensors.

    ``tensors``: the indices of the replicated tensors, in the order of the file; ``begins``, ``sizes``: of each of them, int64 of shape
    ``(tensors,)``, in pages from where the first one begins."""

    def __init__(self, specs: Sequence[TensorSpec], world: int) -> None:
        self._specs = specs
        self.tensors = [i for i in in_file_order(specs) if specs[i].role == REPLICATED]
        self.sizes = np.array([pages(specs[i].nbytes) for i in self.tensors], np.int64)
        self.begins = np.cumsum(self.sizes) - self.sizes
        self._own = [i for i, spec in enumerate(specs) if spec.role == RANK_LOCAL and spec.nbytes]
        self._load = np.zeros(world, np.int64)  # pages of each rank
        self._load[0] = sum(pages(specs[i].nbytes) for i in self._own)
        self._ranges: list[np.ndarray] = []  # int64 of shape (ranges, 2): begin, in pages as ``begins``; and rank
        self._tolerance = int(self.sizes.sum()) // world // _TOLERANCE  # pages

    @property
    def shards(self) -> list[list[Shard]]:
        """Of each rank, in the order of the specs. To be asked when all pages are dealt out."""
        shards: list[list[Shard]] = [[] for _ in self._load]
        shards[0] = [Shard(i, 0, self._specs[i].nbytes) for i in self._own]
        ranges = np.concatenate([np.empty((0, 2), np.int64), *self._ranges])
        ranges = ranges[np.argsort(ranges[:, 0], kind="stable")]
        begins = np.union1d(ranges[:, 0], self.begins)
        ranks = ranges[np.searchsorted(ranges[:, 0], begins, side="right") - 1, 1]
        numbers = np.searchsorted(self.begins, begins, side="right") - 1  # in ``tensors``
        # A rank that has two ranges in succession, as a single rank has, has one shard of each tensor.
        new = np.append(True, (np.diff(ranks) != 0) | (np.diff(numbers) != 0))[: len(begins)]
        begins, ranks, numbers = begins[new], ranks[new], numbers[new]
        ends = np.append(begins[1:], self.sizes.sum())[: len(begins)]
        at = self.begins[numbers]
        columns = ranks, numbers, (begins - at) * UNIT, (ends - at) * UNIT
        for rank, number, begin, end in zip(*(column.tolist() for column in columns), strict=True):
            tensor = self.tensors[number]
            shards[rank].append(Shard(tensor, begin, min(end, self._specs[tensor].nbytes)))
        return [sorted(mine, key=lambda shard: (shard.tensor, shard.start)) for mine in shards]

    def whole_granules(self, count: int, step: int) -> int:
        """How many granules of ``step`` pages are dealt out whole, of the last ``count`` pages: as many as leave enough pages to level the
        ranks within the tolerance."""
        if step == 1:
            return count
        load = self._load
        level = int((load + _level(load, count)).min())
        taking = load <= level + 1  # the others have more than an even share before

        def fits(granules: int) -> bool:
            after = load + _level(load, granules, step) * step
            after += _level(after, count - granules * step)
            return bool(np.ptp(after[taking]) <= max(1, self._tolerance))

        low, high = int((np.maximum(level - load, 0) // step).sum()), count // step
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if fits(middle) else (low, middle - 1)
        return low

    def row(
        self,
        begins: np.ndarray,
        sizes: np.ndarray,
        turns: int = 1,
        least: int = 1,
        step: int = 1,
        near: tuple[int, int] = (0, 1),
    ) -> None:
        """Deals out some ranges of the file, laid one behind the other, so that all ranks' loads become as level as they can. The ranks
        take ``turns`` turns, in each of which every rank takes one range of the row, in the order of the ranks.

        ``begins``: of the ranges, in pages; ``sizes``: of the ranges, in granules of ``step`` pages, in which the row is dealt out;
        ``least``: granules that a rank takes at least, where the row is too short for all ranks. ``near``: (begin, granule) in pages: a
        cut behind ``begin`` moves to a multiple of the granule from there, where one is near enough for the tolerance."""
        stops = np.cumsum(sizes)  # in granules of the row, as all that follows
        total = int(sizes.sum())
        if not total:
            return
        takers = np.sort(np.argsort(self._load, kind="stable")[: -(-total // least)])
        counts = np.zeros_like(self._load)
        counts[takers] = _level(self._load[takers], total, step)
        self._load += counts * step
        # The size of each range, the ranges in the order of the row: an element per turn and rank.
        dealt = np.diff(np.arange(turns + 1)[:, None] * counts // turns, axis=0).ravel()
        ends = np.cumsum(dealt)
        if near[1] > 1:
            moved = near[0] + (ends - near[0] + near[1] // 2) // near[1] * near[1]
            may = (ends > near[0]) & (ends < total) & (np.abs(moved - ends) <= (self._tolerance - 1) // 4)
            ends = np.where(may, np.minimum(moved, total), ends)
        cuts = np.union1d(ends[dealt > 0], stops)
        cut_begins = np.append(0, cuts[:-1])
        ranks = np.searchsorted(ends, cut_begins, side="right") % len(counts)
        numbers = np.searchsorted(stops, cut_begins, side="right")  # of the row's ranges
        at = begins[numbers] + (cut_begins - (stops - sizes)[numbers]) * step
        self._ranges.append(np.stack([at, ranks], axis=1))


def _level(load: np.ndarray, count: int, step: int = 1) -> np.ndarray:
    """How many of ``count`` granules of ``step`` pages each rank takes so that the highest load is as low as possible. ``load``: pages,
    int64, shape ``(ranks,)``; the result: granules, of the same shape. As water fills vessels of different levels: the lowest ranks are
    filled up to one common level."""

    def missing(level: int) -> np.ndarray:
        return np.maximum(level - load, 0) // step

    low, high = int(load.min()), int(load.max()) + (count // len(load) + 1) * step
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if missing(middle).sum() <= count else (low, middle - 1)
    counts = missing(low)
    spare = count - int(counts.sum())
    counts[np.argsort(load + counts * step, kind="stable")[:spare]] += 1
    return counts
