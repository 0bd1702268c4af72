"""Which rank saves which bytes.

The assembled file is dealt out in pages of 4 KiB: every tensor begins a page, and the rank that saves a tensor's last byte also
writes the padding up to the end of that page. So no two ranks ever write bytes of one page, which network file systems whose
clients write whole pages (NFS, cifs) need in order not to lose any.

``per_layer``, the default, deals out each large tensor by itself, one contiguous range of pages per rank: each rank captures 1/N
of every layer while back-propagation of the layers below goes on. The small tensors are dealt out as one row, in the order of the
file. ``contiguous`` deals out all tensors as one row: each rank writes one range of the file, but a rank whose range is of the
lowest layers captures it when no computation is left to hide it.

Both level the pages per rank: they differ by at most one, unless rank 0 alone saves more than an even share.

Deterministic: every rank computes the same plan from the same specs, without talking.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from deepfreeze.format.tensors import RANK_LOCAL, REPLICATED, TensorSpec

UNIT = 4096
SMALL = 64 * 1024  # bytes below which cutting a tensor over all ranks costs more than it hides


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


def in_file_order(specs: Sequence[TensorSpec]) -> list[int]:
    """Indices of the specs that are in the file, in the order in which their bytes follow each other there: small replicated tensors,
    large ones, then those that rank 0 alone saves. Within each part the order of ``specs``; empty tensors have no bytes."""
    inside = [i for i, spec in enumerate(specs) if spec.role in (REPLICATED, RANK_LOCAL) and spec.nbytes]
    return sorted(inside, key=lambda i: (specs[i].role == RANK_LOCAL, not _is_small(specs[i]), i))


def per_layer(specs: Sequence[TensorSpec], world: int) -> list[list[Shard]]:
    """The shards of each rank, in the order of ``specs``.

    Tensors that are not ``replicated`` are never cut: rank 0 saves them (``per-rank`` ones are not in the shared file and
    not placed at all).
    """
    replicated = [i for i in in_file_order(specs) if specs[i].role == REPLICATED]
    small = [i for i in replicated if _is_small(specs[i])]
    return _dealt(specs, world, [small, *([i] for i in replicated if not _is_small(specs[i]))])


def contiguous(specs: Sequence[TensorSpec], world: int) -> list[list[Shard]]:
    """The shards of each rank, in the order of ``specs``: of the replicated tensors, in the order of the file, a range per rank.

    Other tensors as in ``per_layer``; those that rank 0 saves count as its part of the whole.
    """
    return _dealt(specs, world, [[i for i in in_file_order(specs) if specs[i].role == REPLICATED]])


PLACEMENTS: dict[str, Placement] = {"per_layer": per_layer, "contiguous": contiguous}


def _is_small(spec: TensorSpec) -> bool:
    return spec.nbytes < SMALL


def pages(nbytes: int) -> int:
    """How many pages of the file a tensor of this size takes."""
    return -(-nbytes // UNIT)


def _dealt(specs: Sequence[TensorSpec], world: int, rows: Sequence[Sequence[int]]) -> list[list[Shard]]:
    """Rank 0's own tensors, then each row of tensors cut into one range of pages per rank, in the order of the ranks."""
    shards: list[list[Shard]] = [[] for _ in range(world)]
    load = np.zeros(world, np.int64)  # pages
    for i, spec in enumerate(specs):
        if spec.role == RANK_LOCAL and spec.nbytes:
            shards[0].append(Shard(i, 0, spec.nbytes))
            load[0] += pages(spec.nbytes)
    for row in rows:
        counts = _level(load, sum(pages(specs[i].nbytes) for i in row))
        load += counts
        ends = np.cumsum(counts)
        rank = at = 0  # pages of the row that are dealt
        for i in row:
            begin, end = at, at + pages(specs[i].nbytes)
            while at < end:
                while ends[rank] <= at:
                    rank += 1
                stop = min(end, int(ends[rank]))
                shards[rank].append(Shard(i, (at - begin) * UNIT, min((stop - begin) * UNIT, specs[i].nbytes)))
                at = stop
    for mine in shards:
        mine.sort(key=lambda shard: shard.tensor)
    return shards


def _level(load: np.ndarray, count: int) -> np.ndarray:
    """How many of ``count`` pages each rank takes so that the highest load is as low as possible (water filling)."""

    def below(line: int) -> np.ndarray:
        return np.maximum(line - load, 0)

    low, high = int(load.min()), int(load.max()) + count // len(load) + 1
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if below(middle).sum() <= count else (low, middle - 1)
    counts = below(low)
    spare = count - int(counts.sum())
    counts[np.argsort(load + counts, kind="stable")[:spare]] += 1
    return counts
