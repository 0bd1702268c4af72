"""The capture ops: slices taken inside TensorFlow's execution graph. Imports TensorFlow.

Tensors whose last writes come about together (neighbouring layers) share one conditional op and one flat buffer of bytes, so
a step that captures nothing pays for a dozen ops, not for thousands, and collecting a capture is a dozen reads. An ``If`` op
used directly is a kernel that runs its branch only when taken; ``tf.cond`` would be lowered to a switch per tensor (640
tensors in 16 groups: 0.2 against 0.9 ms a step that captures nothing).

All ranks trace the same graph: a group's op takes the same variables on every rank, and which bytes of them a rank copies is
hidden in the op's branch. TensorFlow merges equal allreduces (the gradients of parallel branches) and keeps one name; ranks
with different graphs keep different ones, and Horovod, which matches by name, would wait for ever.

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

    ``variables`` are those of the group on any rank, in one order for all; this rank's ``pieces`` are of some of them.
    ``copy=False`` keeps a reference instead of a copy where TensorFlow allows it.
    """

    def __init__(self, variables: Sequence[Any], pieces: Sequence[Piece], copy: bool) -> None:
        self.variables = tuple(variables)
        self.pieces = tuple(piece for piece in pieces if piece.nbytes)
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
        graph = tf.compat.v1.get_default_graph()
        for variable in self.variables:
            graph.capture(variable.handle)
        parts = [_bytes(piece) for piece in self.pieces] or [tf.zeros([0], tf.uint8)]
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


def group(variables: Sequence[Any], pieces: Sequence[Piece], *, alias: bool) -> list[Group]:
    """Groups variables (the same on every rank) in the order given, which should be the order of their last writes.

    ``pieces`` are this rank's. ``alias`` (one rank): large tensors are captured by reference, each in a group of its own.
    """
    mine: dict[int, list[Piece]] = {}
    for piece in pieces:
        mine.setdefault(id(piece.variable), []).append(piece)

    def make(members: Sequence[Any], copy: bool) -> Group:
        return Group(members, [piece for variable in members for piece in mine.get(id(variable), ())], copy)

    sizes = [(variable, variable.dtype.size * variable.shape.num_elements()) for variable in variables]
    large = [variable for variable, nbytes in sizes if alias and nbytes >= _ALIAS_FROM]
    packed = [(variable, nbytes) for variable, nbytes in sizes if not (alias and nbytes >= _ALIAS_FROM)]
    limit = max(1, sum(nbytes for _, nbytes in packed) // _GROUPS)
    groups: list[list[Any]] = []
    filled = limit
    for variable, nbytes in packed:
        if filled >= limit:
            groups.append([])
            filled = 0
        groups[-1].append(variable)
        filled += nbytes
    return [make([variable], copy=False) for variable in large] + [make(members, copy=True) for members in groups]


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
    return np.frombuffer(memoryview(tensor), np.uint8) if tensor.shape.num_elements() else np.zeros(0, np.uint8)
