"""Asks Keras for the JSON from which it builds a model again. Uses Keras objects, imports neither Keras nor TensorFlow."""

from __future__ import annotations

import contextlib
import os
import tempfile
import warnings
import zipfile
from typing import Any

from deepfreeze.errors import UnsupportedError
from deepfreeze.format.model_config import ModelConfig
from deepfreeze.format.strict_json import parse_object
from deepfreeze.state.keras_objects import optimizers, saveables
from deepfreeze.state.shadow import shadowed

_ASSETS = "assets/"


def model_config(model: Any, run_id: str, attempt: str) -> ModelConfig:
    """The configuration of a Keras 3 or tf_keras model as it is now, for an attempt of a run (both ids: 32 hexadecimal digits).
    UnsupportedError if Keras can't save the model, or if the model needs more than JSON (assets, such as a vocabulary)."""
    try:
        text, assets = _saved_by_keras(model)
        # Standard JSON alone: Python's json module would write NaN, which other readers don't know.
        config = ModelConfig(run_id, attempt, parse_object(text, "config.json"))
        config.to_bytes()
    except Exception as error:  # the get_config of a user's class may raise any error
        expected = "a model that can be saved as .keras"
        raise _unsupported(model, expected, f"{type(error).__name__}: {error}") from error
    if assets:
        expected = "a model that Keras builds again from JSON alone"
        raise _unsupported(model, expected, f"{len(assets)} assets, {assets[0]} for one")
    return config


def _saved_by_keras(model: Any) -> tuple[bytes, list[str]]:
    """The ``config.json`` that ``model.save`` writes into a ``.keras`` file, and the names of the assets in that file.

    Only ``model.save`` writes an object that several layers share as one shared object. It writes no weights here: during the call the
    ``save_own_variables`` of every object stores nothing.
    """
    objects = saveables(model)
    for optimizer in optimizers(model).values():
        objects |= saveables(optimizer)
    with tempfile.TemporaryDirectory(prefix="deepfreeze-") as folder, contextlib.ExitStack() as restore:
        for owner in objects.values():
            restore.enter_context(shadowed(owner, "save_own_variables", lambda store: None))
        restore.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")  # what Keras says of a file that nobody asked for
        file = os.path.join(folder, "config.keras")
        model.save(file)
        with zipfile.ZipFile(file) as archive:
            assets = [name for name in archive.namelist() if name.startswith(_ASSETS) and not name.endswith("/")]
            return archive.read("config.json"), assets


def _unsupported(model: Any, expected: str, found: str) -> UnsupportedError:
    todo = "give the model's own classes a get_config that JSON can hold; checkpoints need no configuration, a .keras file does"
    return UnsupportedError(
        where=f"the model ({type(model).__name__})", expected=expected, found=found[:500], todo=todo
    )
