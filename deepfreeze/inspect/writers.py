"""Which rank wrote which bytes of each tensor, as the records say."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from deepfreeze.format.names import MODEL_FILE
from deepfreeze.format.structure import Placed, Structure
from deepfreeze.format.tensors import PER_RANK
from deepfreeze.store.run import Run
from deepfreeze.thaw.extent_table import read_record


@dataclass(frozen=True)
class Share:
    """Bytes ``start`` to ``stop`` of a flattened tensor, which ``rank`` wrote."""

    rank: int
    start: int
    stop: int


@dataclass(frozen=True)
class Written:
    """What one rank wrote: ``nbytes`` in ``extents`` ranges of the model file, and ``private`` bytes of its own."""

    rank: int
    nbytes: int
    extents: int
    private: int


class Shares:
    """All records of a checkpoint. No byte of the model file is read."""

    def __init__(self, run: Run, step: int) -> None:
        """NotFoundError if there is no such checkpoint, CorruptError if its manifest, structure or a record is damaged."""
        manifest = run.manifest(step)
        self.structure: Structure = run.structure(manifest.structure)
        self.file_size = manifest.file_size
        self.path = run.step_path(step) / MODEL_FILE
        self.ranks: list[Written] = []
        parts = []
        for rank in range(manifest.world_size):
            record = read_record(run.step_path(step), manifest, rank)
            self.ranks.append(Written(rank, record.nbytes, len(record.extents), len(record.private)))
            begin, nbytes = record.extents["offset"].astype(np.int64), record.extents["nbytes"].astype(np.int64)
            parts.append(np.stack([begin, begin + nbytes, np.full(len(begin), rank, np.int64)], axis=1))
        table = np.concatenate(parts)
        self._begins, self._ends, self._ranks = table[np.argsort(table[:, 0], kind="stable")].T.copy()

    def of(self, placed: Placed) -> list[Share]:
        """Who wrote a tensor, in the order of its bytes. A per-rank tensor was written by every rank, each its own."""
        if placed.spec.role == PER_RANK:
            return [Share(written.rank, 0, placed.spec.nbytes) for written in self.ranks]
        found: list[Share] = []
        number = max(0, int(np.searchsorted(self._begins, placed.offset, "right")) - 1)
        while placed.nbytes and number < len(self._begins) and self._begins[number] < placed.end:
            start = max(int(self._begins[number]), placed.offset) - placed.offset
            stop = min(int(self._ends[number]), placed.end) - placed.offset
            rank = int(self._ranks[number])
            if found and found[-1].rank == rank and found[-1].stop == start:
                found[-1] = Share(rank, found[-1].start, stop)
            elif stop > start:
                found.append(Share(rank, start, stop))
            number += 1
        return found
