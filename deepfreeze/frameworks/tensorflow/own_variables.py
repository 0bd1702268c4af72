"""The variables that DeepFreeze itself has in the train function. No checkpoint has them. Imports TensorFlow."""

from __future__ import annotations

import weakref
from typing import Any

import tensorflow as tf

_own: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()  # by id()


def own_variable(value: Any, name: str, dtype: Any = None, shape: Any = None) -> Any:
    """A new variable of ``value``, in host memory. ``shape``: None for that of ``value``."""
    with tf.init_scope(), tf.device("CPU:0"):
        variable = tf.Variable(value, dtype=dtype, shape=shape, trainable=False, name=name)
    _own[id(variable)] = variable
    return variable


def is_own(variable: Any) -> bool:
    """Whether ``own_variable`` has made it."""
    return _own.get(id(variable)) is variable
