"""The questions to a model's variables that each framework answers in its own way. Imports no framework."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from deepfreeze.frameworks.memory import MakeRoom, numpy_room


class Variables(Protocol):
    """The variables of a framework's models. The training thread calls all methods, between two executions of the train function."""

    def key(self, variable: Any) -> Any:
        """The object by which a model's variable is told from all others: the same one in each call, for as long as the variable lives.
        It has the variable's ``dtype`` and ``shape``, and takes weak references. TensorFlow's is the ``tf.Variable`` inside of a Keras
        variable. ``variable``, here and in ``value``: the model's own object, or its key, whose key is the key itself."""

    def value(self, variable: Any) -> np.ndarray:
        """The variable's value in host memory, of its dtype and shape. The caller only reads it, until the next execution. Not a copy
        where the framework gives access to its memory: there may not be enough free memory for a copy."""

    def rooms(self) -> MakeRoom:
        """The function that makes memory of a dtype and shape, which a restored value is read into and which is then assigned to a
        variable. The caller calls the function from any thread."""

    def settle(self, model: Any) -> None:
        """The values of the model's variables are about to be read or assigned. A framework that keeps them elsewhere while it trains
        puts them into the variables, where they stay until the next execution. That one begins with the variables' values, for they may
        have been assigned. Called often, so the second call in a row is quick; also for a model that does not train now, or never has,
        where nothing is to do. Before ``compile`` and at the end of an epoch and of ``fit`` the framework settles by itself."""


class KerasVariables:
    """The variables of a Keras that trains with a framework which DeepFreeze does not know. They can be read and assigned. Implements
    ``Variables``."""

    def key(self, variable: Any) -> Any:
        """The variable itself."""
        return variable

    def value(self, variable: Any) -> np.ndarray:
        """See ``Variables``."""
        return np.asarray(variable)

    def rooms(self) -> MakeRoom:
        """Arrays of numpy."""
        return numpy_room

    def settle(self, model: Any) -> None:
        """Does nothing: nobody knows where this framework keeps its values."""
