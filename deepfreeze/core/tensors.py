"""What is saved, one tensor at a time: names, shapes, dtypes and roles, without any values."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

# Identical on every rank after each step: sharded over the ranks.
REPLICATED = "replicated"
# Differs from rank to rank; the checkpoint holds rank 0's (BatchNorm statistics, metric states).
RANK_LOCAL = "rank-local"
# Differs from rank to rank; the Keras file holds rank 0's, and each rank's record its own (random seeds).
PER_RANK = "per-rank"

ROLES = (REPLICATED, RANK_LOCAL, PER_RANK)


@dataclass(frozen=True)
class TensorSpec:
    """One tensor of the training state.

    ``name`` is unique among a model's tensors, ``dtype`` a numpy dtype's name, ``role`` one of ``ROLES``.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    role: str

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return np.dtype(self.dtype).itemsize

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.size * self.itemsize
