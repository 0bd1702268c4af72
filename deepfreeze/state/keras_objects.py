"""What Keras 3 and tf_keras (Keras 2) objects name differently. Imports neither."""

from __future__ import annotations

import sys
from typing import Any

from deepfreeze.state import private_api


def tf_variable(variable: Any) -> Any:
    """The ``tf.Variable`` inside a Keras 3 variable; a Keras 2 one is its own."""
    return variable.value if hasattr(variable, "path") else variable


def variable_name(variable: Any) -> str:
    """Keras 3's ``path``, or Keras 2's ``name`` without its ``:0``."""
    return getattr(variable, "path", None) or variable.name.removesuffix(":0")


def is_seed(variable: Any) -> bool:
    """Whether it is the state of a random layer's SeedGenerator, which Keras 3 names so and leaves out of its files."""
    return variable_name(variable).endswith("seed_generator_state")


def seeds(model: Any) -> list[tuple[str, Any]]:
    """The states of the model's random layers, each with a name. tf_keras has them as variables only where its
    ``enable_tf_random_generator()`` was called; otherwise they are inside of TensorFlow's kernels."""
    found = [(variable_name(v), v) for v in model.variables if is_seed(v)]
    for part in getattr(model, "submodules", ()):
        generator = private_api.layer_generator(part)
        if generator is not None:
            found.append((f"{part.name}/random_generator_state", generator.state))
    return found


def saveables(root: Any) -> dict[int, Any]:
    """Every object at or below ``root`` that Keras saves (it has ``save_own_variables``), by id."""
    found: dict[int, Any] = {}
    pending, seen = [root], set()
    while pending:
        thing = pending.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if isinstance(thing, dict):
            pending.extend(thing.values())
        elif isinstance(thing, (list, tuple, set, frozenset)):
            pending.extend(thing)
        elif callable(getattr(thing, "save_own_variables", None)) and not isinstance(thing, type):
            found[id(thing)] = thing
            pending.extend(vars(thing).values())
        elif type(thing).__name__ in _CONTAINERS:
            pending.extend(vars(thing).values())
    return found


# Keras 2's holders of compiled metrics and losses: no saveables themselves, but on the way to some.
_CONTAINERS = frozenset({"MetricsContainer", "LossesContainer", "CompileMetrics", "CompileLoss"})


def optimizers(model: Any) -> dict[str, Any]:
    """All optimizers that Keras saves with the model, by the attribute that holds each: ``optimizer``, what ``compile`` was
    given, first; then those of models that train themselves, a GAN's for example."""
    found = {"optimizer": getattr(model, "optimizer", None)}
    found |= {name: value for name, value in vars(model).items() if not name.startswith("_")}
    return {name: value for name, value in found.items() if is_optimizer(value)}


def is_optimizer(thing: Any) -> bool:
    """Whether it is an optimizer of either Keras."""
    return not isinstance(thing, type) and hasattr(thing, "iterations") and hasattr(thing, "apply_gradients")


def optimizer_variables(optimizer: Any) -> list[Any]:
    """All variables of an optimizer: a property, or in old classes a method."""
    own = optimizer.variables
    return list(own() if callable(own) else own)


def is_built(optimizer: Any) -> bool:
    """Whether it has its variables. (The legacy ones of Keras 2 don't say; of tf_keras's loss scales the one inside does.)"""
    if getattr(optimizer, "built", False) or private_api.says_built(optimizer):
        return True
    inner = getattr(optimizer, "inner_optimizer", None)
    return inner is not None and is_built(inner)


def build_optimizer(model: Any) -> None:
    """Makes the variables of the model's optimizer, if it has one that has none yet."""
    optimizer = getattr(model, "optimizer", None)
    if optimizer is not None and not is_built(optimizer) and hasattr(optimizer, "build"):
        optimizer.build(model.trainable_variables)


def framework_of(model: Any) -> dict[str, str]:
    """Which Keras the model is of ("keras", "tf_keras", or "tensorflow" if it is none's), and the versions of Keras (for a
    ``tf.Module``, its optimizer's) and TensorFlow."""
    api = keras_of(model)
    keras = api or keras_of(getattr(model, "optimizer", None)) or "keras"
    versions = {name: sys.modules[name].__version__ for name in (keras, "tensorflow")}
    return {"api": api or "tensorflow", "keras": versions[keras], "tensorflow": versions["tensorflow"]}


def keras_of(thing: Any) -> str | None:
    """Which Keras the class of a thing is from, "keras" or "tf_keras", or None."""
    packages = {c.__module__.split(".")[0] for c in type(thing).__mro__}
    return next((name for name in ("tf_keras", "keras") if name in packages), None)
