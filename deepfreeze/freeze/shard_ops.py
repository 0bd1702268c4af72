"""The capture ops: slices taken inside TensorFlow's execution graph. Imports TensorFlow.

Tensors whose last writes come about together (neighbouring layers) share one conditional op and one flat buffer of bytes, so
a step that captures nothing pays for a dozen ops, not for thousands, and collecting a capture is a dozen reads. An ``If`` op
used directly is a kernel that runs its branch only when taken; ``tf.cond`` would be lowered to a switch per tensor (640
tensors in 16 groups: 0.2 against 0.9 ms a step that captures nothing).

The condition compares the flag, the int64 step to capture, with the step at hand, inside the graph: right also when one
execution runs several steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

# About as many conditional ops per capture; enough for the upper layers not to wait for the lower ones.
_GROUPS = 16
# With one rank, a tensor from this size on is captured by reference: TensorFlow copies it when it next writes to it.
_ALIAS_FROM = 8 << 20


@dataclass(frozen=True)
class Piece:
    """Bytes ``start`` to ``stop`` of a flattened ``tf.Variable``; ``key`` says whose they are."""

    key: int
    variable: Any
    start: int
    stop: int

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.stop - self.start


class Group:
    """Pieces that are captured by one op into one buffer, one after the other.

    ``copy=False`` keeps a reference instead of a copy where TensorFlow allows it.
    """

    def __init__(self, pieces: Sequence[Piece], copy: bool) -> None:
        self.pieces = tuple(pieces)
        self.nbytes = sum(piece.nbytes for piece in pieces)
        self._copy = copy
        with tf.init_scope(), tf.device("CPU:0"):
            self._buffer = tf.Variable(tf.zeros([0], tf.uint8), shape=[None], trainable=False, name="deepfreeze_shard")
            self._take = tf.function(self._assign, autograph=False).get_concrete_function()
            handles = [tf.TensorSpec((), tf.resource)] * len(self._take.captured_inputs)
            self._leave = tf.function(_leave, handles, autograph=False).get_concrete_function()

    def emit(self, hit: tf.Tensor) -> None:
        """Adds the capture to the graph being traced (or does it, when executing eagerly): taken if ``hit`` is true.

        Automatic control dependencies put it behind every write to its variables traced so far, and behind nothing else.
        """
        if tf.executing_eagerly():
            if bool(hit):
                self.take()
            return
        tf.raw_ops.If(
            cond=hit, input=self._take.captured_inputs, Tout=[], then_branch=self._take, else_branch=self._leave
        )

    def take(self) -> None:
        """Captures now, outside any graph."""
        self._take()

    def read(self) -> tf.Tensor:
        """The captured bytes: an eager uint8 tensor that aliases the buffer. Later captures go to a buffer of their own, so
        what it holds never changes."""
        return self._buffer.read_value()

    def _assign(self) -> None:
        parts = [_bytes(piece) for piece in self.pieces]
        value = tf.concat(parts, 0) if len(parts) > 1 else tf.raw_ops.DeepCopy(x=parts[0]) if self._copy else parts[0]
        self._buffer.assign(value)


def _leave(*handles: tf.Tensor) -> None:
    """The branch of a step that captures nothing."""


def _bytes(piece: Piece) -> tf.Tensor:
    flat = tf.reshape(piece.variable.read_value(), [-1])
    size = flat.dtype.size
    if (piece.start, piece.stop) != (0, int(flat.shape[0]) * size):
        flat = flat[tf.constant(piece.start // size, tf.int64) : tf.constant(piece.stop // size, tf.int64)]
    return flat if flat.dtype == tf.uint8 else tf.reshape(tf.bitcast(flat, tf.uint8), [-1])


def group(pieces: Sequence[Piece], *, alias: bool) -> list[Group]:
    """Groups pieces in the order given, which should be the order of their last writes.

    ``alias`` (one rank): large tensors are captured by reference, each in a group of its own.
    """
    pieces = [piece for piece in pieces if piece.nbytes]
    large = [piece for piece in pieces if alias and piece.nbytes >= _ALIAS_FROM]
    packed = [piece for piece in pieces if not (alias and piece.nbytes >= _ALIAS_FROM)]
    limit = max(1, sum(piece.nbytes for piece in packed) // _GROUPS)
    groups: list[list[Piece]] = []
    filled = limit
    for piece in packed:
        if filled >= limit:
            groups.append([])
            filled = 0
        groups[-1].append(piece)
        filled += piece.nbytes
    return [Group([piece], copy=False) for piece in large] + [Group(pieces, copy=True) for pieces in groups]


class Flag:
    """The step to capture, and the step that was captured last (-1: none), as int64 variables the graph reads and writes."""

    def __init__(self) -> None:
        with tf.device("CPU:0"):
            self._target = tf.Variable(-1, dtype=tf.int64, trainable=False, name="deepfreeze_target")
            self._captured = tf.Variable(-1, dtype=tf.int64, trainable=False, name="deepfreeze_captured")

    def arm(self, step: int) -> None:
        """Sets the step to capture."""
        self._target.assign(step)

    def hit(self, step: tf.Tensor) -> tf.Tensor:
        """Whether ``step`` (int64 scalar) is the one to capture."""
        return tf.equal(step, self._target.read_value())

    def last(self) -> tf.Tensor:
        """The step captured last."""
        return self._captured.read_value()

    def mark(self, step: tf.Tensor, hit: tf.Tensor) -> None:
        """In the graph: notes that ``step`` is captured, if ``hit``."""
        self._captured.assign(tf.where(hit, step, self._captured.read_value()))

    @property
    def captured(self) -> int:
        """The step captured last."""
        return int(self._captured.numpy())


def addresses(tensors: Iterable[tf.Tensor]) -> np.ndarray:
    """Where each tensor's bytes are, as uint64: TensorFlow's own buffers, nothing is copied."""
    return np.array([as_bytes(tensor).__array_interface__["data"][0] for tensor in tensors], np.uint64)


def as_bytes(tensor: tf.Tensor) -> np.ndarray:
    """An eager tensor's memory as a uint8 array that aliases it."""
    return np.frombuffer(memoryview(tensor), np.uint8)
