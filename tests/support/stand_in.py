"""A stand-in for a model, for tests that need no TensorFlow."""

from __future__ import annotations

import types


class Model(types.SimpleNamespace):
    """An object with the attributes that it is given. Like a model of Keras it is equal to itself alone, and may be a key of a dictionary
    that does not keep it alive."""

    __hash__ = object.__hash__
    __eq__ = object.__eq__
