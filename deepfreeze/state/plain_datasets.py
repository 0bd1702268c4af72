"""The file of what Keras can't save as it is: one dataset for each variable. For a ``tf.Module`` under the names of the attributes
that lead to it; for a Keras model whose layers transform what they save (LoRA), under ``variables`` by number. The
optimizers' variables are under ``optimizer/vars`` by number, as Keras has them.

Uses the objects' own methods, imports no TensorFlow.
"""

from __future__ import annotations

import io
from typing import Any

import h5py
import numpy as np

from deepfreeze.errors import UnsupportedError
from deepfreeze.state import private_api
from deepfreeze.state.keras_objects import optimizer_variables, optimizers
from deepfreeze.state.training_state import METRIC, STATISTIC, WEIGHT, TrainingState


def of_module(state: TrainingState) -> dict[str, Any]:
    """Every variable of a ``tf.Module`` to save, by its dataset's path. ``UnsupportedError`` for an object that can't name its
    variables."""
    module = state.model
    flatten = private_api.flattened(module)
    if flatten is None:
        raise UnsupportedError(
            where="what is to be saved",
            expected="a Keras model or a tf.Module",
            found=f"a {type(module).__name__}",
            todo="make the variables attributes of a tf.Module",
        )
    own = {id(v) for v in module.variables}
    found: dict[str, Any] = {}
    for path, variable in flatten(predicate=lambda thing: id(thing) in own, with_path=True):
        found["/".join(["module", *(str(part).replace("/", "_") for part in path)])] = variable
    return found | _of_optimizers(state)


def of_model(state: TrainingState) -> dict[str, Any]:
    """Every variable of a Keras model to save, by its dataset's path."""
    weights = {id(tensor.variable) for tensor in state.of_kind(WEIGHT, STATISTIC)}
    own = {id(variable): variable for variable in state.model.variables if id(variable) in weights}
    metrics = [tensor.variable for tensor in state.of_kind(METRIC)]
    # By number: in names Keras counts the layers of a process, so that a second model has others.
    found = {f"variables/{n}": variable for n, variable in enumerate(own.values())}
    found |= {f"metrics/vars/{n}": variable for n, variable in enumerate(metrics)}
    return found | _of_optimizers(state)


def _of_optimizers(state: TrainingState) -> dict[str, Any]:
    return {
        f"{name}/vars/{n}": variable
        for name, optimizer in (optimizers(state.model).items() if state.what == "full" else ())
        for n, variable in enumerate(optimizer_variables(optimizer))
    }


def template(paths: list[str], first_token: int) -> bytes:
    """A weights file with a scalar int64 at each path: ``first_token``, and so on."""
    memory = io.BytesIO()
    with h5py.File(memory, "w") as file:
        for n, path in enumerate(paths):
            file[path] = np.asarray(first_token + n, np.int64)
    return memory.getvalue()
