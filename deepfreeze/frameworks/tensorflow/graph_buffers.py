"""Captures that lie in TensorFlow's own memory. TensorFlow's ops alone copy them there, so this works with every TensorFlow. Imports
TensorFlow.

The ops slice a group's pieces, concatenate them and assign the result to a variable of bytes. TensorFlow allocates fresh memory for each
capture, which takes several times as long as a copy to memory that is used again: ``engine_buffers`` is the fast way.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from deepfreeze.frameworks.state_capture import CapturedState, Piece
from deepfreeze.frameworks.tensorflow.own_variables import own_variable


class GraphBuffers:
    """One variable of bytes per group, uint8 of shape (bytes of the group's pieces,), empty before the first capture. Implements
    ``buffers.Buffers``."""

    engine_memory = None

    def __init__(self) -> None:
        self._variables: list[tf.Variable] = []
        self._groups: list[Sequence[Piece]] = []
        self._offsets: list[np.ndarray] = []  # of each group's pieces in its variable

    def add(self, pieces: Sequence[Piece]) -> int:
        """See ``buffers.Buffers``."""
        with tf.init_scope(), tf.device("CPU:0"):
            self._variables.append(own_variable(_empty(), "deepfreeze_shard", shape=[None]))
        ends = np.cumsum([0, *(piece.nbytes for piece in pieces)], dtype=np.uint64)
        self._offsets.append(ends[:-1])
        self._groups.append(pieces)
        return len(self._groups) - 1

    def follow(self, group: int, pieces: Sequence[Piece]) -> None:
        """See ``buffers.Buffers``."""
        self._groups[group] = pieces

    def write(self, group: int) -> None:
        """See ``buffers.Buffers``."""
        parts = [_bytes(piece) for piece in self._groups[group]] or [_empty()]
        # Without DeepCopy a single slice may share its variable's buffer. The next update of that variable would have to copy it.
        packed = tf.concat(parts, 0) if len(parts) > 1 else tf.raw_ops.DeepCopy(x=parts[0])
        self._variables[group].assign(packed)

    def collect(self) -> CapturedState:
        """See ``buffers.Buffers``. The capture holds TensorFlow's buffers; the next capture is written to other buffers."""
        tensors = [variable.read_value() for variable in self._variables]
        found = [np.uint64(address(tensor)) + offsets for tensor, offsets in zip(tensors, self._offsets, strict=True)]
        return CapturedState(np.concatenate([np.empty(0, np.uint64), *found]), tensors)

    def discard(self) -> None:
        """See ``buffers.Buffers``."""
        for variable in self._variables:
            variable.assign(_empty())

    def close(self) -> None:
        """Does nothing: TensorFlow frees the variables with the graph."""


def _empty() -> tf.Tensor:
    return tf.zeros([0], tf.uint8)


def address(tensor: tf.Tensor) -> int:
    """The address of an eager tensor's bytes; 0 if it has none."""
    return as_bytes(tensor).__array_interface__["data"][0] if tensor.shape.num_elements() else 0


def as_bytes(tensor: tf.Tensor) -> np.ndarray:
    """The memory of an eager tensor, not a copy: uint8 of shape (bytes,)."""
    if tensor.dtype == tf.bfloat16:  # memoryview has no format for its elements; the bitcast shares the buffer
        tensor = tf.bitcast(tensor, tf.uint16)
    return np.frombuffer(memoryview(tensor), np.uint8) if tensor.shape.num_elements() else np.zeros(0, np.uint8)


def _bytes(piece: Piece) -> tf.Tensor:
    """In a graph: the bytes of a piece, uint8 of shape (bytes,)."""
    flat = tf.reshape(piece.variable.read_value(), [-1])
    size = flat.dtype.size
    if (piece.start, piece.stop) != (0, int(flat.shape[0]) * size):
        flat = flat[tf.constant(piece.start // size, tf.int64) : tf.constant(piece.stop // size, tf.int64)]
    if flat.dtype == tf.bool:
        return tf.cast(flat, tf.uint8)  # one byte per element, 0 or 1, as in memory; bitcast does not take bool
    return flat if flat.dtype == tf.uint8 else tf.reshape(tf.bitcast(flat, tf.uint8), [-1])
