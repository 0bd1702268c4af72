"""The ops of the train function that capture. Imports TensorFlow.

One conditional op captures a group of tensors that are updated at about the same time (``plan/capture_plan``). So a step that captures
nothing pays for about 16 ops instead of thousands. The op is TensorFlow's raw ``If``, a kernel that runs its branch only
when the condition is true. ``tf.cond`` would be lowered to a switch per tensor: 640 tensors in 16 groups then take 0.9 instead of 0.2 ms
in a step that captures nothing.

The condition compares the flag (an int64 variable with the step to capture) with the current step, inside the graph. So it is right also
if one execution runs several steps.

Every rank traces the same graph. A group's op takes the same variables on every rank; only the op's branch knows which bytes of them
this rank copies. The reason: TensorFlow merges equal allreduces (the gradients of parallel branches are equal) and keeps the name of
one of them. In different graphs it would keep different names, and Horovod, which matches allreduces by name, would wait for ever.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import tensorflow as tf

from deepfreeze.frameworks.state_capture import Piece
from deepfreeze.frameworks.tensorflow import counters
from deepfreeze.frameworks.tensorflow.buffers import Buffers
from deepfreeze.frameworks.tensorflow.own_variables import own_variable

CAPTURE = "deepfreeze_capture"  # the name of an op that captures, which TensorFlow numbers
_NO_STEP = -1


class Group:
    """The variables that one op captures. ``variables``: the same, in the same order, on every rank; ``pieces``: the bytes of them that
    this rank copies, which may be of a few of the variables, or none; ``number``: the group's number in its buffers."""

    def __init__(self, variables: Sequence[Any], pieces: Sequence[Piece], buffers: Buffers) -> None:
        self.variables = tuple(variables)
        self.pieces = tuple(piece for piece in pieces if piece.nbytes)
        self._buffers = buffers
        self.number = buffers.add(self.pieces)
        self._trace()

    def _trace(self) -> None:
        with tf.init_scope(), tf.device("CPU:0"):
            self._take = tf.function(self._copy, autograph=False).get_concrete_function()
            handles = [tf.TensorSpec((), tf.resource)] * len(self._take.captured_inputs)
            self._capture_nothing = tf.function(_capture_nothing, handles, autograph=False).get_concrete_function()

    def follow(self, moved: Mapping[int, Any]) -> None:
        """Captures other variables in the place of some, from the next ``emit`` on. ``moved``: by the ``id()`` of a variable, the one that
        has taken its place, of the same dtype and shape."""
        if not any(id(variable) in moved for variable in self.variables):
            return
        self.variables = tuple(moved.get(id(variable), variable) for variable in self.variables)
        self.pieces = tuple(
            replace(piece, variable=moved.get(id(piece.variable), piece.variable)) for piece in self.pieces
        )
        self._buffers.follow(self.number, self.pieces)
        self._trace()

    def emit(self, hit: tf.Tensor) -> None:
        """Adds the op to the graph that is being traced. The op captures if ``hit``, a bool scalar of the graph, is true. When TensorFlow
        executes eagerly, the capture is taken in this call.

        TensorFlow's automatic control dependencies run the op after every write to the group's variables that is traced so far, and make
        it wait for nothing else.
        """
        if tf.executing_eagerly():
            if bool(hit):
                self.take()
            return
        tf.raw_ops.If(
            cond=hit,
            input=self._take.captured_inputs,
            Tout=[],
            then_branch=self._take,
            else_branch=self._capture_nothing,
            name=CAPTURE,
        )

    def take(self) -> None:
        """Captures the group in this call. To be called outside of any graph."""
        self._take()

    def _copy(self) -> None:
        graph = tf.compat.v1.get_default_graph()
        for variable in self.variables:
            graph.capture(variable.handle)
        self._buffers.write(self.number)


def _capture_nothing(*handles: tf.Tensor) -> None:
    """The branch of a step that captures nothing."""


class Flag:
    """The step to capture, and the step that was captured last: two int64 scalar variables, -1 for no step. The graph reads the first and
    writes the second."""

    def __init__(self) -> None:
        self._target = counters.OwnNumber(_NO_STEP, "deepfreeze_target")
        self._captured = own_variable(_NO_STEP, "deepfreeze_captured", tf.int64)

    def arm(self, step: int) -> None:
        """Sets the step to capture."""
        self._target.set(step)

    def clear(self) -> None:
        """Sets both to no step."""
        self._target.set(_NO_STEP)
        self._captured.assign(_NO_STEP)

    def hit(self, step: tf.Tensor) -> tf.Tensor:
        """In the graph: whether ``step``, an int64 scalar, is the step to capture. A bool scalar."""
        return tf.equal(step, self._target.variable.read_value())

    def last(self) -> tf.Tensor:
        """In the graph: the step that was captured last, an int64 scalar."""
        return self._captured.read_value()

    def mark(self, step: tf.Tensor, hit: tf.Tensor) -> None:
        """In the graph: notes that ``step`` is captured, if ``hit`` (a bool scalar) is true."""
        self._captured.assign(tf.where(hit, step, self._captured.read_value()))

    @property
    def captured(self) -> int:
        """Outside of any graph: the step that was captured last, -1 for none."""
        return counters.read(self._captured)
