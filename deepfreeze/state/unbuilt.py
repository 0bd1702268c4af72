"""Which parts of a model have no variables yet, and the lines of code that build them. Imports neither Keras nor TensorFlow."""

from __future__ import annotations

from typing import Any

from deepfreeze.state.keras_objects import is_built, optimizers

_KERAS = ("keras", "tf_keras")
INPUT_SHAPE, _VARIABLES = "input_shape", "the_variables_that_it_trains"
# What stands in a line for something that nobody but the user knows, and what to put there.
_PLACEHOLDERS = {
    INPUT_SHAPE: "the shape of a batch of its input with None for the number of samples, such as (None, 28, 28, 1)",
    _VARIABLES: "the list of variables that train_step applies this optimizer to",
}


def unbuilt_layers(model: Any, shape: str = INPUT_SHAPE) -> list[str]:
    """The lines that build the layers of ``model`` that have no variables yet: ``["model.build((None, 28, 28, 1))"]``. An empty list if all
    are built. ``shape``: the shape of a batch as code, if it is known.

    Keras calls a model built when the model itself was called. A model with a ``train_step`` of its own may never be called, although its
    parts are (a VAE's encoder and decoder): it counts as built here when its parts are."""
    if not _is_unbuilt(model):
        return []
    parts = [name for name, part in vars(model).items() if not name.startswith("_") and _is_unbuilt_model(part)]
    if parts and not _is_own(type(model), "call"):
        return [f"model.{name}.build({INPUT_SHAPE})" for name in parts]
    return [f"model.build({shape})"]


def unbuilt_optimizers(model: Any) -> list[str]:
    """The lines that build those optimizers of ``model`` that ``compile`` was not given:
    ``["model.d_optimizer.build(model.discriminator.trainable_variables)"]``. An empty list if all are built. The compiled optimizer needs
    no line: it is built from the model's trainable variables."""
    unbuilt = [name for name, one in optimizers(model).items() if name != "optimizer" and not is_built(one)]
    return [f"model.{name}.build({_trained_by(name, model)})" for name in unbuilt]


def placeholders(lines: list[str]) -> str:
    """What to put in the place of what ``lines`` can't say, as the end of a message; "" if they say all."""
    used = {name: meaning for name, meaning in _PLACEHOLDERS.items() if any(name in line for line in lines)}
    return "".join(f"; {name} stands for {meaning}" for name, meaning in used.items())


def _is_unbuilt(layer: Any) -> bool:
    built = getattr(layer, "built", True)
    parts = list(getattr(layer, "layers", None) or ())
    if not parts or _of_keras(type(layer)):
        return not built
    # A class of the user's. Its own weights, if it makes any, come from its own build.
    return (not built and _is_own(type(layer), "build")) or any(_is_unbuilt(part) for part in parts)


def _is_unbuilt_model(thing: Any) -> bool:
    return _has_weights(thing) and hasattr(thing, "built") and _is_unbuilt(thing)


def _has_weights(thing: Any) -> bool:
    # The class is asked: in Keras 2 a model that is not built raises an error instead of giving its variables. A metric is a layer there.
    return hasattr(type(thing), "trainable_variables") and not hasattr(thing, "update_state")


def _trained_by(optimizer: str, model: Any) -> str:
    """The variables that the optimizer of this name trains, as code: those of the part whose name begins as the optimizer's does."""
    start = optimizer.split("_")[0]
    parts = [
        name
        for name, part in vars(model).items()
        if name.startswith(start) and name != optimizer and _has_weights(part)
    ]
    return f"model.{parts[0]}.trainable_variables" if len(parts) == 1 else _VARIABLES


def _is_own(cls: type, method: str) -> bool:
    """Whether a class of the user's defines this method."""
    return any(method in vars(one) and not _of_keras(one) for one in cls.__mro__ if one is not object)


def _of_keras(cls: type) -> bool:
    return cls.__module__.split(".")[0] in _KERAS
