"""Host memory into which a restored tensor's bytes are read: of a numpy array, or of a framework's own tensor. Imports no framework."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import mmap
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from deepfreeze.format.tensors import TensorSpec, numpy_dtype

PAGE = 4096  # bytes; the alignment of memory with which a file can be read by O_DIRECT on every file system
LARGE = 1 << 20  # bytes; a tensor of this size or more begins a page, and asks for huge pages
_libc = ctypes.CDLL(None)
_KERASES = frozenset(["keras", "tf_keras"])
# Imported by name, and only if the process has imported TensorFlow already.
_TENSORFLOW = "deepfreeze.frameworks.tensorflow.tensor_memory"


@dataclass(frozen=True, eq=False)
class Room:
    """Memory for one tensor. ``data``: its bytes, a writable uint8 array of shape (bytes,), into which the caller reads; ``value``: the
    tensor or array that has this memory."""

    value: Any
    data: np.ndarray


MakeRoom = Callable[[TensorSpec], Room]


def for_model(model: Any) -> MakeRoom:
    """The function that makes room for the values of this model's variables: in TensorFlow's memory for a Keras model on TensorFlow, else
    in numpy arrays."""
    tf: Any = sys.modules.get("tensorflow")
    is_keras = any(cls.__module__.split(".")[0] in _KERASES for cls in type(model).__mro__)
    if tf is None or not is_keras or sys.byteorder != "little" or not tf.executing_eagerly():
        return numpy_room
    return importlib.import_module(_TENSORFLOW).room


def numpy_room(spec: TensorSpec) -> Room:
    """Room in a numpy array of the spec's shape and dtype, little-endian as in the model file."""
    data = np.empty(spec.nbytes + (PAGE if spec.nbytes >= LARGE else 0), np.uint8)
    if spec.nbytes >= LARGE:
        skip = -data.ctypes.data % PAGE
        data = data[skip : skip + spec.nbytes]
        ask_for_huge_pages(data)
    return Room(data.view(numpy_dtype(spec.dtype).newbyteorder("<")).reshape(spec.shape), data)


def ask_for_huge_pages(data: np.ndarray) -> None:
    """Asks the system for huge pages for this memory, uint8 of shape (bytes,). The first write to memory then takes a third of the time."""
    advice = getattr(mmap, "MADV_HUGEPAGE", None)
    begin = -(-data.ctypes.data // PAGE) * PAGE
    nbytes = (data.ctypes.data + len(data) - begin) // PAGE * PAGE
    if advice is not None and nbytes:
        # The call is advice. A system that has no huge pages returns an error, and the memory keeps its small pages.
        with contextlib.suppress(OSError, AttributeError):
            _libc.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(nbytes), advice)
