"""Reads and writes whole numbers that variables hold, outside of any graph. Imports TensorFlow.

A variable's own methods ``numpy`` and ``assign`` take three times as long, and are called after executions of the train function: what they
make in between is not needed for one number.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf


def read(variable: tf.Variable) -> int:
    """The value of a scalar variable of whole numbers."""
    return int(tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=variable.dtype))


def write(variable: tf.Variable, value: int) -> None:
    """Sets a scalar variable of whole numbers."""
    tf.raw_ops.AssignVariableOp(resource=variable.handle, value=np.array(value, variable.dtype.as_numpy_dtype))
