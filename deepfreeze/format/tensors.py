"""The description of a saved tensor: its name, shape, dtype and role. It has no values."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from deepfreeze.format.strict_json import MAX_INT

# The roles of a tensor.
# The same on every rank after each step (trainable weights, optimizer variables). Each rank saves a shard of it.
REPLICATED = "replicated"
# Different on each rank; the model file has rank 0's values (BatchNorm statistics, metric states).
RANK_LOCAL = "rank-local"
# Different on each rank; each rank's record has that rank's values, and the model file has none (random seeds).
PER_RANK = "per-rank"

ROLES = (REPLICATED, RANK_LOCAL, PER_RANK)


# The element types that a checkpoint can hold: numbers of a fixed size, stored as little-endian, which mean the same on every machine.
DTYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("bfloat16", "float16", "float32", "float64", "complex64", "complex128"),
)
BFLOAT16 = "bfloat16"


def shape_of(value: object, most: int) -> tuple[int, ...] | None:
    """A value of a file as a shape: a list of at most ``most`` integers from 0 to 2**63 - 1. None for anything else.

    To be asked before dimensions are multiplied. Then a product has at most ``most`` factors of 19 digits; that of all the long integers
    which a file of some MB can hold takes minutes."""
    if not isinstance(value, list) or len(value) > most:
        return None
    return tuple(value) if all(type(n) is int and 0 <= n <= MAX_INT for n in value) else None


def numpy_dtype(name: str) -> np.dtype:
    """The numpy dtype of one of ``DTYPES``. numpy itself has no bfloat16: the dtype is then that of the package ml_dtypes, which
    comes with TensorFlow, or uint16 (the bits of each element) where ml_dtypes is not installed."""
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

    @cached_property  # a restore asks a dozen times for each of a model's tensors
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.size * self.itemsize
