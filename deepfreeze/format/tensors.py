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


# Each is stored in the file as little-endian elements of a fixed size; nothing else means the same on every machine.
DTYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("bfloat16", "float16", "float32", "float64", "complex64", "complex128"),
)
BFLOAT16 = "bfloat16"


def numpy_dtype(name: str) -> np.dtype:
    """One of ``DTYPES`` as numpy has it. numpy itself knows no bfloat16: that is ml_dtypes's, which comes with TensorFlow, and
    without it the elements' bits, as uint16."""
    if name != BFLOAT16:
        return np.dtype(name)
    try:
        import ml_dtypes
    except ImportError:
        return np.dtype("uint16")
    return np.dtype(ml_dtypes.bfloat16)


@dataclass(frozen=True)
class TensorSpec:
    """One tensor of the training state.

    ``name`` is unique among a model's tensors, ``dtype`` one of ``DTYPES``, ``role`` one of ``ROLES``.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    role: str

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return numpy_dtype(self.dtype).itemsize

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.size * self.itemsize
