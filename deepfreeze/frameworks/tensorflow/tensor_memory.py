"""Memory of TensorFlow's own that a restored value is read into. Imports TensorFlow.

A tensor is allocated without being filled, its bytes are read into it, and the assignment gives the variable that buffer as it is. So
values are copied nowhere, nothing is kept alive behind TensorFlow's back, and the next training step updates the variable in
place, as if TensorFlow had computed it. (A numpy array would be aliased or copied by ``assign``, and an aliased one copied again
by the next step, onto fresh pages.) No two variables share a buffer, and no variable's present memory is touched.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf

from deepfreeze.format.tensors import BFLOAT16, TensorSpec
from deepfreeze.frameworks.memory import LARGE, PAGE, Room, ask_for_huge_pages, numpy_room
from deepfreeze.frameworks.tensorflow.variables import tf_variable

# Elements of a tensor that is made as one dimension, with room for a page: the op's shapes are of int32.
_MOST = 2**31 - 1 - PAGE


def room(spec: TensorSpec) -> Room:
    """A tensor of this dtype and shape, in host memory, whose bytes are not written yet; from 1 MiB on it begins on a page. A numpy
    array for more elements than one of TensorFlow's dimensions can count."""
    nbytes, itemsize = spec.nbytes, spec.itemsize
    count = nbytes // itemsize
    if count > _MOST:
        return numpy_room(spec)  # copied when it is assigned
    if spec.dtype == BFLOAT16:  # which has no buffer that Python could name; a bitcast shares it
        made = room(replace(spec, dtype="uint16"))
        return TensorRoom(tf.bitcast(made.value, tf.bfloat16), made.data)
    # In host memory: reading needs its address. A variable elsewhere gets a copy when it is assigned.
    with tf.device("CPU:0"):
        if nbytes < LARGE:
            tensor = _empty(spec.shape, spec.dtype)
        else:
            flat = _empty((count + PAGE // itemsize,), spec.dtype)
            # A slice that begins at an aligned address shares the buffer.
            skip = -_address(flat) % PAGE // itemsize
            part = tf.raw_ops.Slice(input=flat, begin=_ints((skip,)), size=_ints((count,)))
            tensor = tf.raw_ops.Reshape(tensor=part, shape=_ints(spec.shape))
    data = np.asarray(_Bytes(tensor, nbytes)) if nbytes else np.empty(0, np.uint8)
    if nbytes >= LARGE:
        ask_for_huge_pages(data)
    return TensorRoom(tensor, data)


class TensorRoom(Room):
    """A room whose value is a tensor of TensorFlow's."""

    def assign(self, variable: Any) -> None:
        """See Room. Compares neither dtype nor shape."""
        # Keras's assign, and tf.Variable's inside of it, convert and compare the value first and read the variable afterwards: 52 us
        # for a small variable, where this op takes 9.
        tf.raw_ops.AssignVariableOp(resource=tf_variable(variable).handle, value=self.value)


def _empty(shape: tuple[int, ...], dtype: str) -> Any:
    # For a dtype's name, or a shape that is a tuple, TensorFlow leaves its fast path: 39 us instead of 16.
    return tf.raw_ops.Empty(shape=_ints(shape), dtype=tf.as_dtype(dtype), init=False)


def _ints(values: tuple[int, ...]) -> np.ndarray:
    return np.array(values, np.int32)


class _Bytes:
    """A tensor's buffer as numpy takes it, writable. Arrays made of it keep the tensor."""

    def __init__(self, tensor: Any, nbytes: int) -> None:
        self._tensor = tensor
        place = (_address(tensor), False)
        self.__array_interface__ = {"version": 3, "shape": (nbytes,), "typestr": "|u1", "data": place}


def _address(tensor: Any) -> int:
    return np.asarray(memoryview(tensor)).ctypes.data
