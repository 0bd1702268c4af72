"""Memory of TensorFlow's own that a restored value is read into. Imports TensorFlow.

A tensor is allocated without being filled, its bytes are read into it, and ``variable.assign`` takes its buffer over as it is. So
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
from deepfreeze.frameworks.memory import LARGE, PAGE, Room, ask_for_huge_pages


def room(spec: TensorSpec) -> Room:
    """A tensor whose bytes are not written yet."""
    if spec.dtype == BFLOAT16:  # which has no buffer that Python could name; a bitcast shares it
        made = room(replace(spec, dtype="uint16"))
        return Room(tf.bitcast(made.value, tf.bfloat16), made.data)
    # In host memory: reading needs its address. A variable elsewhere gets a copy when it is assigned.
    with tf.device("CPU:0"):
        if spec.nbytes < LARGE:
            tensor = tf.raw_ops.Empty(shape=spec.shape, dtype=spec.dtype, init=False)
        else:
            itemsize = spec.itemsize
            count = spec.nbytes // itemsize
            flat = tf.raw_ops.Empty(shape=[count + PAGE // itemsize], dtype=spec.dtype, init=False)
            # A slice that begins at an aligned address shares the buffer.
            skip = -_address(flat) % PAGE // itemsize
            tensor = tf.reshape(flat[skip : skip + count], spec.shape)
    data = np.asarray(_Bytes(tensor, spec.nbytes)) if spec.nbytes else np.empty(0, np.uint8)
    if spec.nbytes >= LARGE:
        ask_for_huge_pages(data)
    return Room(tensor, data)


class _Bytes:
    """A tensor's buffer as numpy takes it, writable. Arrays made of it keep the tensor."""

    def __init__(self, tensor: Any, nbytes: int) -> None:
        self._tensor = tensor
        place = (_address(tensor), False)
        self.__array_interface__ = {"version": 3, "shape": (nbytes,), "typestr": "|u1", "data": place}


def _address(tensor: Any) -> int:
    return np.asarray(memoryview(tensor)).ctypes.data
