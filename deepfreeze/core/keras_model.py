"""What Keras 3 and tf_keras (Keras 2) objects name differently. Imports neither."""

from __future__ import annotations

import sys
from typing import Any


def tf_variable(variable: Any) -> Any:
    """The ``tf.Variable`` inside a Keras 3 variable; a Keras 2 one is its own."""
    return variable.value if hasattr(variable, "path") else variable


def variable_name(variable: Any) -> str:
    """Keras 3's ``path``, or Keras 2's ``name`` without its ``:0``."""
    return getattr(variable, "path", None) or variable.name.removesuffix(":0")


def is_seed(variable: Any) -> bool:
    """Whether it is the state of a random layer's SeedGenerator, which Keras 3 names so and leaves out of its files."""
    return variable_name(variable).endswith("seed_generator_state")


def optimizer_variables(model: Any) -> list[Any]:
    """All variables of the model's optimizer: a property, or in old classes a method."""
    own = model.optimizer.variables
    return list(own() if callable(own) else own)


def build_optimizer(model: Any) -> None:
    """Makes the variables of the model's optimizer, if it has one that has none yet."""
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None or getattr(optimizer, "built", False) or getattr(optimizer, "_built", False):
        return
    if hasattr(optimizer, "build"):
        optimizer.build(model.trainable_variables)


def framework_of(model: Any) -> dict[str, str]:
    """Which Keras the model is of ("keras" or "tf_keras"), and the versions of it and TensorFlow."""
    api = "tf_keras" if any(c.__module__.split(".")[0] == "tf_keras" for c in type(model).__mro__) else "keras"
    return {"api": api, "keras": sys.modules[api].__version__, "tensorflow": sys.modules["tensorflow"].__version__}
