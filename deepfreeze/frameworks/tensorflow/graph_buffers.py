"""Captures kept in TensorFlow's own memory: the path that needs nothing but TensorFlow's ops. Imports TensorFlow.

Each group's pieces are sliced, packed and assigned to a variable of bytes. TensorFlow finds fresh memory for every such
buffer, which costs several times as much as a copy onto memory that is used again: ``engine_buffers`` is the fast path.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from deepfreeze.frameworks.framework import Captured, Piece


class GraphBuffers:
    """One variable of bytes per group, uint8 of shape (bytes of the group's pieces,), empty before the first capture. Implements
    ``buffers.Buffers``."""

    engine_memory = None

    def __init__(self) -> None:
        self._variables: list[tf.Variable] = []
        self._groups: list[Sequence[Piece]] = []
        self._offsets: list[np.ndarray] = []  # of each group's pieces in its variable

    def add(self, pieces: Sequence[Piece]) -> int:
        """A new group; returns its number."""
        with tf.init_scope(), tf.device("CPU:0"):
            self._variables.append(tf.Variable(_empty(), shape=[None], trainable=False, name="deepfreeze_shard"))
        ends = np.cumsum([0, *(piece.nbytes for piece in pieces)], dtype=np.uint64)
        self._offsets.append(ends[:-1])
        self._groups.append(pieces)
        return len(self._groups) - 1

    def write(self, group: int) -> None:
        """Adds the ops that copy a group's pieces to the graph."""
        parts = [_bytes(piece) for piece in self._groups[group]] or [_empty()]
        # A slice that is assigned may alias the whole variable, whose next update would pay for it.
        packed = tf.concat(parts, 0) if len(parts) > 1 else tf.raw_ops.DeepCopy(x=parts[0])
        self._variables[group].assign(packed)

    def collect(self) -> Captured:
        """The last capture. Its buffers are TensorFlow's own; a later capture goes to others."""
        tensors = [variable.read_value() for variable in self._variables]
        found = [np.uint64(address(tensor)) + offsets for tensor, offsets in zip(tensors, self._offsets, strict=True)]
        return Captured(np.concatenate([np.empty(0, np.uint64), *found]), tensors)

    def discard(self) -> None:
        """See ``buffers.Buffers``."""
        for variable in self._variables:
            variable.assign(_empty())

    def close(self) -> None:
        """Nothing to do: the variables go with the graph."""


def _empty() -> tf.Tensor:
    return tf.zeros([0], tf.uint8)


def address(tensor: tf.Tensor) -> int:
    """The address of an eager tensor's bytes; 0 if it has none."""
    return as_bytes(tensor).__array_interface__["data"][0] if tensor.shape.num_elements() else 0


def as_bytes(tensor: tf.Tensor) -> np.ndarray:
    """An eager tensor's memory as a uint8 array that aliases it."""
    if tensor.dtype == tf.bfloat16:  # Python has no name for its elements; a bitcast shares the buffer
        tensor = tf.bitcast(tensor, tf.uint16)
    return np.frombuffer(memoryview(tensor), np.uint8) if tensor.shape.num_elements() else np.zeros(0, np.uint8)


def _bytes(piece: Piece) -> tf.Tensor:
    flat = tf.reshape(piece.variable.read_value(), [-1])
    size = flat.dtype.size
    if (piece.start, piece.stop) != (0, int(flat.shape[0]) * size):
        flat = flat[tf.constant(piece.start // size, tf.int64) : tf.constant(piece.stop // size, tf.int64)]
    if flat.dtype == tf.bool:
        return tf.cast(flat, tf.uint8)  # a byte each, 0 or 1: bitcast takes numbers alone
    return flat if flat.dtype == tf.uint8 else tf.reshape(tf.bitcast(flat, tf.uint8), [-1])
