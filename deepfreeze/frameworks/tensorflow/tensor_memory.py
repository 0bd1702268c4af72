"""TensorFlow's own memory, into which a restored value is read. Imports TensorFlow.

A tensor is allocated and not filled, the value's bytes are read into its buffer, and ``variable.assign`` takes the buffer over. So no
value is copied, and the next training step updates the variable in place, as if TensorFlow had computed the value. (``assign`` of a numpy
array copies the array, or shares its memory; in the second case the next step copies it to fresh memory.) No two variables share a
buffer, and the variables keep their present values until they are assigned.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf

from deepfreeze.format.tensors import BFLOAT16, TensorSpec
from deepfreeze.frameworks.memory import LARGE, PAGE, Room, ask_for_huge_pages


def room(spec: TensorSpec) -> Room:
    """Room in a tensor in host memory, of the spec's shape and dtype. Its bytes are undefined until the caller writes them."""
    if spec.dtype == BFLOAT16:  # memoryview has no format for its elements; the bitcast shares the buffer
        made = room(replace(spec, dtype="uint16"))
        return Room(tf.bitcast(made.value, tf.bfloat16), made.data)
    # On the CPU, because reading needs the buffer's address. The assignment to a variable on another device copies it there.
    with tf.device("CPU:0"):
        if spec.nbytes < LARGE:
            tensor = tf.raw_ops.Empty(shape=spec.shape, dtype=spec.dtype, init=False)
        else:
            itemsize = spec.itemsize
            count = spec.nbytes // itemsize
            flat = tf.raw_ops.Empty(shape=[count + PAGE // itemsize], dtype=spec.dtype, init=False)
            # One page more than needed, to begin at a page. TensorFlow lets a slice that begins at such an address share the buffer.
            skip = -_address(flat) % PAGE // itemsize
            tensor = tf.reshape(flat[skip : skip + count], spec.shape)
    data = np.asarray(_Bytes(tensor, spec.nbytes)) if spec.nbytes else np.empty(0, np.uint8)
    if spec.nbytes >= LARGE:
        ask_for_huge_pages(data)
    return Room(tensor, data)


class _Bytes:
    """A tensor's buffer in the form that ``np.asarray`` takes, writable. The array keeps a reference to this object, and so the tensor."""

    def __init__(self, tensor: Any, nbytes: int) -> None:
        self._tensor = tensor
        place = (_address(tensor), False)
        self.__array_interface__ = {"version": 3, "shape": (nbytes,), "typestr": "|u1", "data": place}


def _address(tensor: Any) -> int:
    return np.asarray(memoryview(tensor)).ctypes.data
