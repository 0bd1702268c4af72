"""Which parts of a model have no variables yet, and the lines of code that build them. Imports neither Keras nor TensorFlow."""

from __future__ import annotations

from typing import Any

from deepfreeze.state import applied, untracked
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


def unbuilt_optimizers(model: Any, everywhere: bool = False) -> list[str]:
    """The lines that build those optimizers of ``model`` that ``compile`` was not given:
    ``["model.d_optimizer.build(model.discriminator.trainable_variables)"]``. An empty list if all are built. The compiled optimizer needs
    no line: it is built from the model's trainable variables, or by the first trace.

    Of the optimizers that are not public attributes only a trace tells whether the training has a part for them (those that models inside
    of this model were compiled with have none): they are among the lines with ``everywhere``, for a training that nobody can trace."""
    unbuilt = [name for name, one in optimizers(model).items() if name != "optimizer" and not is_built(one)]
    wanted = [name for name in unbuilt if name in vars(model) and not name.startswith("_")]
    if everywhere:
        wanted = [name for name in unbuilt if not name.endswith(".optimizer")]
    return [f"model.{name}.build({_trained_by(name, model)})" for name in wanted]


def trains_itself(model: Any) -> bool:
    """Whether ``train_step`` is not Keras's own: then only a trace of it tells which optimizers it applies, and to which variables."""
    own = vars(model).get("train_step")
    if own is not None and getattr(own, "__module__", "").split(".")[0] != __name__.split(".")[0]:
        return True
    definer = next((one for one in type(model).__mro__ if "train_step" in vars(one)), None)
    return definer is not None and not _of_keras(definer)


def unseen_optimizers(model: Any) -> list[str]:
    """The optimizers of ``model`` (see ``optimizers``) that are not built, or were built for variables that nobody can find, and of which
    no trace of a ``train_step`` of the user's has shown yet whether the training has a part for them. An empty list for a model that
    Keras's own step trains: the compiled optimizer trains the model's list there."""
    if not trains_itself(model):
        return []
    unseen = {name: one for name, one in optimizers(model).items() if not applied.is_seen(model, one)}
    return [name for name, one in unseen.items() if not is_built(one) or untracked.unknown(model, one)]


def line_for_compiled() -> str:
    """The line that builds the optimizer that ``compile`` was given, where nothing tells for which variables."""
    return f"model.optimizer.build({_VARIABLES})"


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
