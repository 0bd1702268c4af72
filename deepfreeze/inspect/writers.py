"""Tells from the records which rank wrote which bytes of each tensor."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from deepfreeze.format.names import MODEL_FILE
from deepfreeze.format.structure import Placed, Structure
from deepfreeze.format.tensors import PER_RANK
from deepfreeze.store.run import Run
from deepfreeze.thaw.rank_records import read_records


@dataclass(frozen=True)
class WrittenShard:
    """The bytes ``start`` to ``stop`` (exclusive) of a tensor, which ``rank`` wrote."""

    rank: int
    start: int
    stop: int


@dataclass(frozen=True)
class Written:
    """How much one rank wrote. ``nbytes``: bytes of the model file; ``extents``: the number of ranges in which they lie; ``private``: bytes
    of the rank's per-rank tensors, in its record."""

    rank: int
    nbytes: int
    extents: int
    private: int


class ShardTable:
    """Which rank wrote which bytes of a checkpoint. ``structure``: the checkpoint's; ``file_size`` and ``path``: the model file's size in
    bytes and its path; ``ranks``: one ``Written`` per rank."""

    def __init__(self, run: Run, step: int) -> None:
        """Reads manifest, structure and all records, and no byte of the model file. NotFoundError if there is no such checkpoint,
        CorruptError if one of these files is damaged."""
        manifest = run.manifest(step)
        self.structure: Structure = run.structure(manifest.structure)
        self.file_size = manifest.file_size
        self.path = run.step_path(step) / MODEL_FILE
        self.ranks: list[Written] = []
        tables = []  # per rank: begin, end and rank of each extent; int64, shape (extents, 3)
        for rank, record in enumerate(read_records(run, manifest)):
            self.ranks.append(Written(rank, record.nbytes, len(record.extents), len(record.private)))
            begin, nbytes = record.extents["offset"].astype(np.int64), record.extents["nbytes"].astype(np.int64)
            tables.append(np.stack([begin, begin + nbytes, np.full(len(begin), rank, np.int64)], axis=1))
        table = np.concatenate(tables)
        self._begins, self._ends, self._ranks = table[np.argsort(table[:, 0], kind="stable")].T.copy()

    def of(self, placed: Placed) -> list[WrittenShard]:
        """The shards of a tensor, in the order of its bytes. Of a per-rank tensor every rank wrote all bytes, each its own."""
        if placed.spec.role == PER_RANK:
            return [WrittenShard(written.rank, 0, placed.spec.nbytes) for written in self.ranks]
        shards: list[WrittenShard] = []
        number = max(0, int(np.searchsorted(self._begins, placed.offset, "right")) - 1)
        while placed.nbytes and number < len(self._begins) and self._begins[number] < placed.end:
            start = max(int(self._begins[number]), placed.offset) - placed.offset
            stop = min(int(self._ends[number]), placed.end) - placed.offset
            rank = int(self._ranks[number])
            if shards and shards[-1].rank == rank and shards[-1].stop == start:
                shards[-1] = WrittenShard(rank, shards[-1].start, stop)
            elif stop > start:
                shards.append(WrittenShard(rank, start, stop))
            number += 1
        return shards
