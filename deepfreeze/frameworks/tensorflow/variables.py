"""TensorFlow's variable inside of a variable of Keras."""

from __future__ import annotations

from typing import Any


def tf_variable(variable: Any) -> Any:
    """The ``tf.Variable`` inside a Keras 3 variable. A Keras 2 variable is a ``tf.Variable`` itself, and is returned."""
    return variable.value if hasattr(variable, "path") else variable
