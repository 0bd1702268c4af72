"""What Keras needs to build a model again, asked of Keras. Uses Keras objects, imports neither Keras nor TensorFlow."""

from __future__ import annotations

import contextlib
import os
import tempfile
import zipfile
from typing import Any

from deepfreeze.errors import UnsupportedError
from deepfreeze.format.model_config import ModelConfig
from deepfreeze.format.strict_json import parse_object
from deepfreeze.state.keras_objects import optimizers, saveables
from deepfreeze.state.shadow import shadowed

_ASSETS = "assets/"


def model_config(model: Any, run_id: str, attempt: str) -> ModelConfig:
    """The configuration of a Keras 3 or tf_keras model as it is now. UnsupportedError if Keras can't write it, or needs more
    than JSON to build the model again."""
    try:
        text, assets = _saved_by_keras(model)
        # Strict: each reader would have to guess what NaN stands for.
        made = ModelConfig(run_id, attempt, parse_object(text, "config.json"))
        made.to_bytes()
    except Exception as error:  # a model's own get_config may raise anything
        expected = "a model that can be saved as .keras"
        raise _unsupported(model, expected, f"{type(error).__name__}: {error}") from error
    if assets:
        expected = "a model that Keras builds again from JSON alone"
        raise _unsupported(model, expected, f"{len(assets)} assets, {assets[0]} for one")
    return made


def _saved_by_keras(model: Any) -> tuple[bytes, list[str]]:
    """The ``config.json`` that Keras itself writes, and the names of the assets beside it, if any.

    By ``model.save``, which alone keeps objects shared that several layers share. It writes no weights: while it runs, no
    object has any.
    """
    objects = saveables(model)
    for optimizer in optimizers(model).values():
        objects |= saveables(optimizer)
    with tempfile.TemporaryDirectory(prefix="deepfreeze-") as folder, contextlib.ExitStack() as restore:
        for owner in objects.values():
            restore.enter_context(shadowed(owner, "save_own_variables", lambda store: None))
        file = os.path.join(folder, "config.keras")
        model.save(file)
        with zipfile.ZipFile(file) as archive:
            assets = [name for name in archive.namelist() if name.startswith(_ASSETS) and not name.endswith("/")]
            return archive.read("config.json"), assets


def _unsupported(model: Any, expected: str, found: str) -> UnsupportedError:
    todo = "leave save_config out, or give the model's own classes a get_config that JSON can hold"
    return UnsupportedError(
        where=f"the model ({type(model).__name__})", expected=expected, found=found[:500], todo=todo
    )
