"""Which rank saves which bytes.

The default, ``per_layer``: every large tensor is cut at multiples of 4 KiB into one contiguous range per rank, so that each
rank captures 1/N of every layer while back-propagation of the layers below goes on, and no two ranks share a page of the
file. A small tensor goes whole to the rank with the least to do. Totals differ by at most one unit (4 KiB, or the largest
tensor that is kept whole when nothing large is there to even it out).

``contiguous``: all tensors one after the other, cut into one range per rank: fewer and larger writes, but a rank whose range is
of the lowest layers captures them when nothing is left to hide it. Cut at the same places; each rank's total is within one
unit of an even share.

Deterministic: every rank computes the same plan from the same specs, without talking.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from deepfreeze.core.tensors import RANK_LOCAL, REPLICATED, TensorSpec

UNIT = 4096
WHOLE_BELOW = 64 * 1024


@dataclass(frozen=True)
class Shard:
    """Bytes ``start`` to ``stop`` of flattened tensor number ``tensor`` (an index into the specs)."""

    tensor: int
    start: int
    stop: int

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.stop - self.start


Placement = Callable[[Sequence[TensorSpec], int], list[list[Shard]]]


def per_layer(specs: Sequence[TensorSpec], world: int) -> list[list[Shard]]:
    """The shards of each rank, in the order of ``specs``.

    Tensors that are not ``replicated`` are never cut: rank 0 saves them (``per-rank`` ones are not in the shared file and
    not placed at all).
    """
    shards: list[list[Shard]] = [[] for _ in range(world)]
    load = np.zeros(world, np.int64)

    def give(rank: int, tensor: int, start: int, stop: int) -> None:
        if stop > start:
            shards[rank].append(Shard(tensor, start, stop))
            load[rank] += stop - start

    for i, spec in enumerate(specs):
        if spec.role == RANK_LOCAL:
            give(0, i, 0, spec.nbytes)
    replicated = [i for i, spec in enumerate(specs) if spec.role == REPLICATED]
    # Largest first, so that the small ones even out what the larger ones left.
    for i in sorted((i for i in replicated if specs[i].nbytes < WHOLE_BELOW), key=lambda i: (-specs[i].nbytes, i)):
        give(int(np.argmin(load)), i, 0, specs[i].nbytes)
    for i in (i for i in replicated if specs[i].nbytes >= WHOLE_BELOW):
        _cut(i, specs[i].nbytes, load, give)
    for rank in range(world):
        shards[rank].sort(key=lambda shard: shard.tensor)
    return shards


def _cut(tensor: int, nbytes: int, load: np.ndarray, give: Callable[[int, int, int, int], None]) -> None:
    """Cuts one tensor so that the loads become as level as its size allows."""
    whole, tail = divmod(nbytes, UNIT)
    sizes = _level(load, whole) * UNIT
    last = int(np.argmin(load + sizes))
    sizes[last] += tail
    # The tail is the tensor's end, so the rank that takes it (the least loaded) comes last.
    start = 0
    for rank in [*np.flatnonzero(np.arange(len(load)) != last).tolist(), last]:
        stop = start + int(sizes[rank])
        give(rank, tensor, start, stop)
        start = stop


def _level(load: np.ndarray, units: int) -> np.ndarray:
    """How many of ``units`` each rank takes so that the highest load is as low as possible (water filling)."""

    def below(line: int) -> np.ndarray:
        return np.maximum(line - load, 0) // UNIT

    low, high = int(load.min()), int(load.max()) + UNIT * (units // len(load) + 1)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if below(middle).sum() <= units else (low, middle - 1)
    counts = below(low)
    spare = units - int(counts.sum())
    counts[np.argsort(load + counts * UNIT, kind="stable")[:spare]] += 1
    return counts


def contiguous(specs: Sequence[TensorSpec], world: int) -> list[list[Shard]]:
    """The shards of each rank, in the order of ``specs``: of the replicated tensors, in that order, a range per rank.

    Other tensors as in ``per_layer``; what rank 0 saves of them counts as its part of the whole.
    """
    shards: list[list[Shard]] = [[] for _ in range(world)]
    local = [i for i, spec in enumerate(specs) if spec.role == RANK_LOCAL and spec.nbytes]
    shards[0] = [Shard(i, 0, specs[i].nbytes) for i in local]
    replicated = [i for i, spec in enumerate(specs) if spec.role == REPLICATED and spec.nbytes]
    sizes = np.array([specs[i].nbytes for i in replicated], np.int64)
    ends = np.cumsum(sizes)
    cuts = _cuts(ends - sizes, sizes, sum(shard.nbytes for shard in shards[0]), world)
    rank = 0
    for i, start, end in zip(replicated, (ends - sizes).tolist(), ends.tolist(), strict=True):
        at = start
        while at < end:
            while cuts[rank + 1] <= at:
                rank += 1
            stop = min(end, cuts[rank + 1])
            shards[rank].append(Shard(i, at - start, stop - start))
            at = stop
    shards[0].sort(key=lambda shard: shard.tensor)
    return shards


def _cuts(starts: np.ndarray, sizes: np.ndarray, local: int, world: int) -> list[int]:
    """Where the ranks' ranges begin and end in the sequence of tensors: ``world + 1`` places, the nearest ones allowed to those
    that would be even."""
    total = int(sizes.sum())
    # Rank 0's even share, less what it saves anyway; the others divide the rest among them.
    first = min(total, max(0, (total + local) // world - local))
    cuts = [0]
    for rank in range(world - 1):
        place = first + (total - first) * rank // (world - 1)
        i = min(int(np.searchsorted(starts, place, "right")), len(starts)) - 1
        start, size = (int(starts[i]), int(sizes[i])) if total else (0, 1)
        unit = UNIT if size >= WHOLE_BELOW else size
        cuts.append(start + min(size, (place - start + unit // 2) // unit * unit))
    return [*cuts, total]


PLACEMENTS: dict[str, Placement] = {"per_layer": per_layer, "contiguous": contiguous}
