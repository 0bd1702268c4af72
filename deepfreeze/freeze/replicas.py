"""Checksums of the tensors that all ranks should hold alike. Rank 0's engine compares them when it commits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from deepfreeze.format.structure import Structure
from deepfreeze.frameworks.framework import Capture
from deepfreeze.state.dataset_paths import LocatedTensor
from veloc_bindings import crc32c


class ReplicaChecksums:
    """One checksum for each replicated tensor, in the structure's order; none where a single rank has nobody to be compared with."""

    def __init__(
        self, capture: Capture, tensors: Sequence[LocatedTensor], structure: Structure, world_size: int
    ) -> None:
        variables = {tensor.path: tensor.variable for tensor in tensors}
        placed = structure.replicated if world_size > 1 else []
        self.names = [p.spec.name for p in placed]
        self._capture = capture
        self._variables = [variables[p.path] for p in placed]

    def take(self, compare: bool) -> bytes:
        """A little-endian u32 CRC32C of each tensor as it is now, read where it lies; zeros unless ``compare``."""
        crcs = np.zeros(len(self._variables), "<u4")
        for i, variable in enumerate(self._variables if compare else ()):
            crcs[i] = crc32c(self._capture.memory_of(variable))
        return crcs.tobytes()
