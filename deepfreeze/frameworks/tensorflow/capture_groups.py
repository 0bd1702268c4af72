"""The capture ops: slices taken inside TensorFlow's execution graph. Imports TensorFlow.

Tensors whose last writes come about together (neighbouring layers) share one conditional op, so a step that captures nothing
pays for a dozen ops, not for thousands. An ``If`` op used directly is a kernel that runs its branch only when taken;
``tf.cond`` would be lowered to a switch per tensor (640 tensors in 16 groups: 0.2 against 0.9 ms a step that captures
nothing).

All ranks trace the same graph: a group's op takes the same variables on every rank, and which bytes of them a rank copies is
hidden in the op's branch. TensorFlow merges equal allreduces (the gradients of parallel branches) and keeps one name; ranks
with different graphs keep different ones, and Horovod, which matches by name, would wait for ever.

The condition compares the flag, the int64 step to capture, with the step at hand, inside the graph: right also when one
execution runs several steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from deepfreeze.frameworks.framework import Piece
from deepfreeze.frameworks.tensorflow.buffers import Buffers

# About as many conditional ops per capture; enough for the upper layers not to wait for the lower ones.
_GROUPS = 16
_NO_STEP = -1


class Group:
    """Pieces that are captured by one op, into one of the buffers' groups.

    ``variables`` are those of the group on any rank, in one order for all; this rank's ``pieces`` are of some of them.
    """

    def __init__(self, variables: Sequence[Any], pieces: Sequence[Piece], buffers: Buffers) -> None:
        self.variables = tuple(variables)
        self.pieces = tuple(piece for piece in pieces if piece.nbytes)
        self._buffers = buffers
        self._number = buffers.add(self.pieces)
        with tf.init_scope(), tf.device("CPU:0"):
            self._take = tf.function(self._copy, autograph=False).get_concrete_function()
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

    def _copy(self) -> None:
        graph = tf.compat.v1.get_default_graph()
        for variable in self.variables:
            graph.capture(variable.handle)
        self._buffers.write(self._number)


def _leave(*handles: tf.Tensor) -> None:
    """The branch of a step that captures nothing."""


def group(variables: Sequence[Any], pieces: Sequence[Piece], buffers: Buffers) -> list[Group]:
    """Groups variables (the same on every rank) in the order given, which should be the order of their last writes.

    ``pieces`` are this rank's.
    """
    mine: dict[int, list[Piece]] = {}
    for piece in pieces:
        mine.setdefault(id(piece.variable), []).append(piece)
    sizes = [(variable, variable.dtype.size * variable.shape.num_elements()) for variable in variables]
    limit = max(1, sum(nbytes for _, nbytes in sizes) // _GROUPS)
    groups: list[list[Any]] = []
    filled = limit
    for variable, nbytes in sizes:
        if filled >= limit:
            groups.append([])
            filled = 0
        groups[-1].append(variable)
        filled += nbytes
    return [
        Group(members, [piece for variable in members for piece in mine.get(id(variable), ())], buffers)
        for members in groups
    ]


class Flag:
    """The step to capture, and the step that was captured last (-1: none), as int64 variables the graph reads and writes."""

    def __init__(self) -> None:
        with tf.device("CPU:0"):
            self._target = tf.Variable(_NO_STEP, dtype=tf.int64, trainable=False, name="deepfreeze_target")
            self._captured = tf.Variable(_NO_STEP, dtype=tf.int64, trainable=False, name="deepfreeze_captured")

    def arm(self, step: int) -> None:
        """Sets the step to capture."""
        self._target.assign(step)

    def clear(self) -> None:
        """No step to capture, and none captured."""
        self._target.assign(_NO_STEP)
        self._captured.assign(_NO_STEP)

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
