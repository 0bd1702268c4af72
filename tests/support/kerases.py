"""Which Kerases are installed here: Keras 3 with tf_keras beside it, or the Keras 2 that TensorFlow 2.15 brings as ``keras``."""

from __future__ import annotations

from importlib import metadata
from typing import Any

import pytest

KERAS_IS_2 = metadata.version("keras").startswith("2.")
NAMES = ("keras",) if KERAS_IS_2 else ("keras", "tf_keras")
needs_keras_3 = pytest.mark.skipif(KERAS_IS_2, reason="of Keras 3 alone, and the Keras here is TensorFlow 2.15's")


def is_2(keras: Any) -> bool:
    """Whether this package is a Keras 2."""
    return not hasattr(keras, "ops")
