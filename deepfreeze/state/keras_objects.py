"""Questions to objects of Keras that Keras 3 and tf_keras (Keras 2) answer by different names. Imports neither."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator
from typing import Any

from deepfreeze.frameworks.table import backend_of, keras_of, of
from deepfreeze.state import private_api


def variable_name(variable: Any) -> str:
    """Keras 3's ``path``, or Keras 2's ``name`` without its ``:0``."""
    return getattr(variable, "path", None) or variable.name.removesuffix(":0")


def listed_variables(owner: Any) -> list[Any]:
    """The variables that an object lists. A lookup of Keras 2 that is adapted lists its table too, which is none: it is left out."""
    variables = getattr(owner, "variables", ())
    return [one for one in (variables() if callable(variables) else variables) if hasattr(one, "assign")]


def is_seed(variable: Any) -> bool:
    """Whether a variable is the state of a random layer's SeedGenerator. Keras 3 leaves these states out of its weights files."""
    return variable_name(variable).endswith("seed_generator_state")


def seeds(model: Any) -> list[tuple[str, Any]]:
    """(name, variable) of the states of the model's random layers. In tf_keras only a program that has called
    ``enable_tf_random_generator()`` has them as variables; otherwise they are inside of TensorFlow's kernels, and can't be saved."""
    states = [(variable_name(v), v) for v in listed_variables(model) if is_seed(v)]
    for layer in getattr(model, "submodules", ()):
        generator = private_api.layer_generator(layer)
        if generator is not None:
            states.append((f"{layer.name}/random_generator_state", generator.state))
    return states


def saveables(root: Any) -> dict[int, Any]:
    """Every object that Keras saves with ``root``, by its ``id()``: ``root`` and the objects among its attributes, and theirs, that have a
    method ``save_own_variables``."""
    found: dict[int, Any] = {}
    # Objects of one class are alike, and a large model has thousands of them: most are of classes that are known to hold none.
    kinds: dict[type, str] = {}
    others: set[type] = set()
    pending, seen = [root], set()
    while pending:
        thing = pending.pop()
        kind = kinds.get(type(thing))
        if kind is None:
            kind = kinds[type(thing)] = _kind(thing)
            if kind == _OTHER:
                others.add(type(thing))
        if kind == _OTHER or id(thing) in seen:
            continue
        seen.add(id(thing))
        if kind == _SAVEABLE:
            found[id(thing)] = thing
        parts = thing if kind == _ITEMS else thing.values() if kind == _MAPPING else vars(thing).values()
        pending += [one for one in parts if type(one) not in others]
    return found


_SAVEABLE, _MAPPING, _ITEMS, _CONTAINER, _OTHER = "saveable", "mapping", "items", "container", "other"


def _kind(thing: Any) -> str:
    """What ``saveables`` does with objects of this one's class."""
    if isinstance(thing, dict):
        return _MAPPING
    if isinstance(thing, (list, tuple, set, frozenset)):
        return _ITEMS
    if callable(getattr(thing, "save_own_variables", None)) and not isinstance(thing, type):
        return _SAVEABLE
    return _CONTAINER if type(thing).__name__ in CONTAINERS else _OTHER


# Keras 2's classes for compiled metrics and losses. They have no save_own_variables, but hold objects that do.
CONTAINERS = frozenset({"MetricsContainer", "LossesContainer", "CompileMetrics", "CompileLoss"})


def optimizers(model: Any) -> dict[str, Any]:
    """All optimizers that Keras saves with the model, by the code that leads from the model to each: first ``optimizer``, which ``compile``
    was given, then those in other public attributes, such as a GAN's ``g_optimizer``; then those in private attributes, in lists, tuples
    and dicts (``_opts[0]``, ``opts['critic']``), and those that models inside of this model were compiled with (``teacher.optimizer``)."""
    found = {"optimizer": getattr(model, "optimizer", None)}
    found |= {name: value for name, value in vars(model).items() if not name.startswith("_")}
    found = {name: value for name, value in found.items() if is_optimizer(value)}
    known = {id(one) for one in found.values()}
    for name, optimizer in _further_optimizers(model):
        if id(optimizer) not in known:
            known.add(id(optimizer))
            found[name] = optimizer
    return found


def _further_optimizers(model: Any) -> Iterator[tuple[str, Any]]:
    """The optimizers behind the attributes of ``model``, each with the code that leads to it. One may come more than once: first with the
    code of the fewest parts, of a public attribute if there is one. Keras and TensorFlow have lists of their own of what a model has."""
    # Of large models, which have thousands of objects and few classes: those to look into, and those that are no optimizers.
    leads: dict[type, bool] = {}
    others: set[type] = set()
    pending: deque[tuple[str, Any]] = deque([("", model)])
    seen: set[int] = set()
    while pending:
        place, thing = pending.popleft()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        code, items = "{}[{!r}]", thing
        if isinstance(thing, dict):
            items = thing.items()
        elif isinstance(thing, (list, tuple)):
            items = enumerate(thing)
        else:
            code, items = "{}.{}" if place else "{}{}", sorted(vars(thing).items(), key=_is_private)
        for key, value in items:
            kind = type(value)
            if kind not in leads:
                leads[kind] = isinstance(value, (dict, list, tuple)) or hasattr(kind, "train_step")
                if not leads[kind] and not (hasattr(kind, "apply_gradients") and is_optimizer(value)):
                    others.add(kind)
            if kind in others:
                continue
            if leads[kind]:
                pending.append((code.format(place, key), value))
            elif is_optimizer(value):
                yield code.format(place, key), value


def _is_private(item: tuple[str, Any]) -> bool:
    return item[0].startswith("_")


def is_optimizer(thing: Any) -> bool:
    """Whether ``thing`` is an optimizer of Keras 3 or tf_keras."""
    return not isinstance(thing, type) and hasattr(thing, "apply_gradients") and hasattr(thing, "iterations")


def optimizer_variables(optimizer: Any) -> list[Any]:
    """All variables of an optimizer, the loss scale's at the end. ``variables`` is a property, and a method in old classes."""
    variables = optimizer.variables
    return [*(variables() if callable(variables) else variables), *private_api.loss_scale(optimizer)]


def is_built(optimizer: Any) -> bool:
    """Whether an optimizer has made its variables. False for the legacy optimizers of Keras 2, which don't tell. A LossScaleOptimizer of
    tf_keras is built if the optimizer inside of it is."""
    if getattr(optimizer, "built", False) or private_api.says_built(optimizer):
        return True
    inner = getattr(optimizer, "inner_optimizer", None)
    return inner is not None and is_built(inner)


def build_optimizer(model: Any) -> None:
    """Makes the variables of the model's optimizer, if the model has an optimizer and it is not built yet."""
    optimizer = getattr(model, "optimizer", None)
    if optimizer is not None and not is_built(optimizer) and hasattr(optimizer, "build"):
        optimizer.build(model.trainable_variables)


def framework_of(model: Any) -> dict[str, str]:
    """The frameworks of a model, for ``Structure.framework``. ``api``: "keras" or "tf_keras", or "tensorflow" for a model of neither;
    ``keras``: the version of the model's Keras, or of its optimizer's for a ``tf.Module``; and the versions of the framework's packages,
    ``tensorflow`` for example."""
    api = keras_of(model)
    keras = api or keras_of(getattr(model, "optimizer", None)) or "keras"
    return {"api": api or backend_of(model), "keras": sys.modules[keras].__version__, **of(model).versions()}
