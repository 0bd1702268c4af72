"""Checksums of the replicated tensors, by which the ranks are compared. Each rank saves its checksums with a checkpoint, and rank 0's
engine compares them when it commits the checkpoint.

To read all weights takes long, so most checkpoints have the checksums of a part of them. The parts are the same on all ranks: ranges of
the replicated bytes, which for this lie one after the other in the structure's order, in whole pages and across the tensors' borders.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate

import numpy as np

from deepfreeze.engine.checksums import crc32c
from deepfreeze.format.structure import Structure
from deepfreeze.frameworks.state_capture import StateCapture
from deepfreeze.plan.comparisons import Compared
from deepfreeze.plan.placement import UNIT
from deepfreeze.state.dataset_paths import LocatedTensor
from deepfreeze.state.training_state import TrainingState

# From so many bytes on threads are worth their start, about half a millisecond.
_PARALLEL = 32 << 20


class ReplicaChecksums:
    """One checksum for each replicated tensor; ``names``: the tensors' names, in the structure's order. A job of one rank has nobody to
    compare with, so it has no checksums and no names."""

    def __init__(
        self,
        capture: StateCapture[TrainingState],
        tensors: Sequence[LocatedTensor],
        structure: Structure,
        world_size: int,
    ) -> None:
        variables = {tensor.path: tensor.variable for tensor in tensors}
        placed = structure.replicated if world_size > 1 else []
        self.names = [p.spec.name for p in placed]
        self._capture = capture
        self._variables = [variables[p.path] for p in placed]
        # Where each tensor begins among the replicated bytes, and where the last one ends.
        self._begins = [0, *accumulate(p.spec.nbytes for p in placed)]

    def span(self, part: Compared) -> tuple[int, int]:
        """The range of a part among the replicated bytes; empty if there are fewer pages than parts."""
        pages = -(-self._begins[-1] // UNIT)
        begin, end = (pages * number // part.of * UNIT for number in (part.number, part.number + 1))
        return begin, min(end, self._begins[-1])

    def take(self, part: Compared | None) -> tuple[bytes, dict[str, bytes]]:
        """The CRC32C of each tensor's present bytes that lie in the part, a little-endian u32 each, in the order of ``names``; 0 for a
        tensor without such bytes. Of the whole part (1 of 1) these are the checksums of whole tensors. With None for ``part`` all are
        zeros, which tell the engine that the ranks are not compared. Then the named values that say which part it is. Training waits
        for this call, so it uses all cores of the process where there is much to read."""
        crcs = np.zeros(len(self._variables), "<u4")
        if part is None or not self._variables:
            return crcs.tobytes(), {}
        begin, end = self.span(part)
        pieces = []
        for number, first in enumerate(self._begins[:-1]):
            low, high = max(begin, first), min(end, self._begins[number + 1])
            if low < high:
                memory = self._capture.memory_of(self._variables[number])
                pieces.append((number, memory[low - first : high - first]))
        self._fill(crcs, pieces)
        values = {} if part.whole else {"compared_part": struct.pack("<QQ", begin, end)}
        return crcs.tobytes(), values

    @staticmethod
    def _fill(crcs: np.ndarray, pieces: list[tuple[int, np.ndarray]]) -> None:
        """Sets the checksums of the numbered pieces."""
        if sum(len(data) for _, data in pieces) < _PARALLEL:
            for number, data in pieces:
                crcs[number] = crc32c(data)
            return
        pieces.sort(key=lambda piece: -len(piece[1]))  # the largest first
        with ThreadPoolExecutor(len(os.sched_getaffinity(0)), "deepfreeze-replicas") as pool:
            # crc32c releases the interpreter's lock, so the threads run at the same time.
            found = pool.map(crc32c, [data for _, data in pieces])
            crcs[[number for number, _ in pieces]] = np.fromiter(found, np.uint32, len(pieces))
