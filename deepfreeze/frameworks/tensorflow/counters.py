"""Reads and writes whole numbers that variables hold, outside of any graph. Imports TensorFlow.

A variable's own methods ``numpy`` and ``assign`` take three times as long, and are called after executions of the train function: what they
make in between is not needed for one number.
"""

from __future__ import annotations

import tensorflow as tf

from deepfreeze.frameworks.tensorflow.own_variables import own_variable


def read(variable: tf.Variable) -> int:
    """The value of a scalar variable of whole numbers."""
    return int(tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=variable.dtype))


class OwnNumber:
    """A variable of this package's own that holds one int64, which nothing but ``set`` writes. ``variable``: for the graph, which reads
    it."""

    def __init__(self, value: int, name: str) -> None:
        self.variable = own_variable(value, name, tf.int64)
        self._value = value
        self._difference, self._added = 0, _int64(0)

    def set(self, value: int) -> None:
        """Sets the number, by an addition. The addend is kept as a tensor, because making a tensor takes longer than adding it, and a
        training that captures every tenth step adds ten each time."""
        if value - self._value != self._difference:
            self._difference = value - self._value
            self._added = _int64(self._difference)
        tf.raw_ops.AssignAddVariableOp(resource=self.variable.handle, value=self._added)
        self._value = value


def _int64(value: int) -> tf.Tensor:
    with tf.init_scope(), tf.device("CPU:0"):
        return tf.constant(value, tf.int64)
