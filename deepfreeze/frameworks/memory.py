"""Host memory that a tensor's bytes are read into, in the form in which they are wanted: an array, or a framework's own tensor.
Imports no framework."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from deepfreeze.format.tensors import TensorSpec, numpy_dtype

PAGE = 4096  # what O_DIRECT wants, on every file system there is
LARGE = 1 << 20  # from here on a page of waste is nothing, and huge pages may pay
_libc = ctypes.CDLL(None)


@dataclass(frozen=True, eq=False)
class Room:
    """``value``: a tensor or array whose bytes are those of ``data``, a writable uint8 array."""

    value: Any
    data: np.ndarray

    def assign(self, variable: Any) -> None:
        """Gives a variable ``value``, once all of ``data`` is written. The caller has compared dtype and shape: they are the same."""
        variable.assign(self.value)


MakeRoom = Callable[[TensorSpec], Room]


def numpy_room(spec: TensorSpec) -> Room:
    """An array, little-endian as in the file."""
    data = np.empty(spec.nbytes + (PAGE if spec.nbytes >= LARGE else 0), np.uint8)
    if spec.nbytes >= LARGE:
        skip = -data.ctypes.data % PAGE
        data = data[skip : skip + spec.nbytes]
        ask_for_huge_pages(data)
    return Room(data.view(numpy_dtype(spec.dtype).newbyteorder("<")).reshape(spec.shape), data)


def ask_for_huge_pages(data: np.ndarray) -> None:
    """Asks for huge pages: memory that nobody has touched yet costs a third then."""
    advice = getattr(mmap, "MADV_HUGEPAGE", None)
    begin = -(-data.ctypes.data // PAGE) * PAGE
    nbytes = (data.ctypes.data + len(data) - begin) // PAGE * PAGE
    if advice is not None and nbytes:
        # A kernel without huge pages refuses by a return value, which needs no answer: small pages are slower and hold the same bytes.
        _libc.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(nbytes), advice)
