"""Memory that a tensor's bytes are read into, in the shape in which they are wanted.

For a Keras model it is TensorFlow's own: a tensor is allocated without being filled, its bytes are read into it, and
``variable.assign`` takes its buffer over as it is. So values are copied nowhere, nothing is kept alive behind TensorFlow's
back, and the next training step updates the variable in place, as if TensorFlow had computed it. (A numpy array would be
aliased or copied by ``assign``, and an aliased one copied again by the next step, onto fresh pages.) No two variables
share a buffer, and no variable's present memory is touched.

Uses TensorFlow where the process has it loaded; imports it nowhere.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from deepfreeze.core.tensors import BFLOAT16, TensorSpec, numpy_dtype

_PAGE = 4096  # what O_DIRECT wants, on every file system there is
_LARGE = 1 << 20  # from here on a page of waste is nothing, and huge pages may pay
_libc = ctypes.CDLL(None)
_FRAMEWORKS = frozenset(["keras", "tf_keras"])


@dataclass(frozen=True, eq=False)
class Room:
    """``value``: a tensor or array whose bytes are those of ``data``, a writable uint8 array."""

    value: Any
    data: np.ndarray


MakeRoom = Callable[[TensorSpec], Room]


def for_model(model: Any) -> MakeRoom:
    """What makes room for the values of a model's variables."""
    tf: Any = sys.modules.get("tensorflow")
    is_keras = any(cls.__module__.split(".")[0] in _FRAMEWORKS for cls in type(model).__mro__)
    if tf is None or not is_keras or sys.byteorder != "little" or not tf.executing_eagerly():
        return numpy_room
    return lambda spec: _tensorflow_room(tf, spec)


def numpy_room(spec: TensorSpec) -> Room:
    """An array, little-endian as in the file."""
    data = np.empty(spec.nbytes + (_PAGE if spec.nbytes >= _LARGE else 0), np.uint8)
    if spec.nbytes >= _LARGE:
        skip = -data.ctypes.data % _PAGE
        data = data[skip : skip + spec.nbytes]
        _huge(data)
    return Room(data.view(numpy_dtype(spec.dtype).newbyteorder("<")).reshape(spec.shape), data)


def _tensorflow_room(tf: Any, spec: TensorSpec) -> Room:
    if spec.dtype == BFLOAT16:  # which has no buffer that Python could name; a bitcast shares it
        room = _tensorflow_room(tf, replace(spec, dtype="uint16"))
        return Room(tf.bitcast(room.value, tf.bfloat16), room.data)
    # In host memory: reading needs its address. A variable elsewhere gets a copy when it is assigned.
    with tf.device("CPU:0"):
        if spec.nbytes < _LARGE:
            tensor = tf.raw_ops.Empty(shape=spec.shape, dtype=spec.dtype, init=False)
        else:
            itemsize = spec.itemsize
            count = spec.nbytes // itemsize
            flat = tf.raw_ops.Empty(shape=[count + _PAGE // itemsize], dtype=spec.dtype, init=False)
            # A slice that begins at an aligned address shares the buffer.
            skip = -_address(flat) % _PAGE // itemsize
            tensor = tf.reshape(flat[skip : skip + count], spec.shape)
    data = np.asarray(_Bytes(tensor, spec.nbytes)) if spec.nbytes else np.empty(0, np.uint8)
    if spec.nbytes >= _LARGE:
        _huge(data)
    return Room(tensor, data)


class _Bytes:
    """A tensor's buffer as numpy takes it, writable. Arrays made of it keep the tensor."""

    def __init__(self, tensor: Any, nbytes: int) -> None:
        self._tensor = tensor
        place = (_address(tensor), False)
        self.__array_interface__ = {"version": 3, "shape": (nbytes,), "typestr": "|u1", "data": place}


def _address(tensor: Any) -> int:
    return np.asarray(memoryview(tensor)).ctypes.data


def _huge(data: np.ndarray) -> None:
    """Asks for huge pages: memory that nobody has touched yet costs a third then."""
    advice = getattr(mmap, "MADV_HUGEPAGE", None)
    begin = -(-data.ctypes.data // _PAGE) * _PAGE
    nbytes = (data.ctypes.data + len(data) - begin) // _PAGE * _PAGE
    if advice is not None and nbytes:
        # It is advice: a system that can't follow it says so, and all goes on with small pages.
        with contextlib.suppress(OSError, AttributeError):
            _libc.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(nbytes), advice)
