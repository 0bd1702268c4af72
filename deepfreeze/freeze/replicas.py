"""Checksums of the replicated tensors, by which the ranks are compared. Each rank saves its checksums with a checkpoint, and rank 0's
engine compares them when it commits the checkpoint."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from deepfreeze.format.structure import Structure
from deepfreeze.frameworks.framework import StateCapture
from deepfreeze.state.dataset_paths import LocatedTensor
from veloc_bindings import crc32c


class ReplicaChecksums:
    """One checksum for each replicated tensor; ``names``: the tensors' names, in the structure's order. A job of one rank has nobody to
    compare with, so it has no checksums and no names."""

    def __init__(
        self, capture: StateCapture, tensors: Sequence[LocatedTensor], structure: Structure, world_size: int
    ) -> None:
        variables = {tensor.path: tensor.variable for tensor in tensors}
        placed = structure.replicated if world_size > 1 else []
        self.names = [p.spec.name for p in placed]
        self._capture = capture
        self._variables = [variables[p.path] for p in placed]

    def take(self, compare: bool) -> bytes:
        """The CRC32C of each tensor's present bytes, a little-endian u32 each, in the order of ``names``. Without ``compare`` as many zero
        bytes, which tell the engine that the ranks are not compared. Training waits for this call, so it uses all cores of the process."""
        if not compare or not self._variables:
            return bytes(4 * len(self._variables))
        tensors = [self._capture.memory_of(variable) for variable in self._variables]
        largest_first = sorted(range(len(tensors)), key=lambda i: -tensors[i].nbytes)
        crcs = np.zeros(len(tensors), "<u4")
        with ThreadPoolExecutor(len(os.sched_getaffinity(0)), "deepfreeze-replicas") as pool:
            # crc32c releases the interpreter's lock, so the threads run at the same time.
            found = pool.map(crc32c, [tensors[i] for i in largest_first])
            crcs[largest_first] = np.fromiter(found, np.uint32, len(tensors))
        return crcs.tobytes()
