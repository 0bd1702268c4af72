"""The layout ``plain-h5`` of the model file: one dataset for each variable, for models whose variables Keras can't save as they are.

The path of a variable of a ``tf.Module`` has the names of the attributes that lead to the variable (``module/encoder/kernel``). The
variables of a Keras model whose layers transform what they save (LoRA) are numbered: ``variables/0``, ``metrics/vars/0``, and
``lookups/0`` for weights of Keras 3's lookups, which no model lists. The optimizer's variables are numbered as in Keras's own files:
``optimizer/vars/0``.

Uses the objects' own methods, imports no TensorFlow.
"""

from __future__ import annotations

import io
from typing import Any

import h5py
import numpy as np

from deepfreeze.errors import UnsupportedError
from deepfreeze.format.dataset_groups import LOOKUPS
from deepfreeze.state import private_api
from deepfreeze.state.keras_objects import optimizer_variables, optimizers
from deepfreeze.state.training_state import METRIC, STATISTIC, WEIGHT, TrainingState


def of_module(state: TrainingState) -> dict[str, Any]:
    """The variables to save of a ``tf.Module``, by the path of their dataset. ``UnsupportedError`` for an object that is no
    ``tf.Module``."""
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
    variables: dict[str, Any] = {}
    for path, variable in flatten(predicate=lambda thing: id(thing) in own, with_path=True):
        variables["/".join(["module", *(str(name).replace("/", "_") for name in path)])] = variable
    return variables | _of_optimizers(state)


def of_model(state: TrainingState) -> dict[str, Any]:
    """The variables to save of a Keras model, by the path of their dataset."""
    weights = {id(tensor.variable) for tensor in state.of_kind(WEIGHT, STATISTIC)}
    own = {id(variable): variable for variable in state.model.variables if id(variable) in weights}
    metrics = [tensor.variable for tensor in state.of_kind(METRIC)]
    # Numbers and not names: Keras counts the layers of a process, so the names of a second model of the process differ.
    variables = {f"variables/{n}": variable for n, variable in enumerate(own.values())}
    variables |= {f"metrics/vars/{n}": variable for n, variable in enumerate(metrics)}
    variables |= {f"{LOOKUPS}/{n}": one for n, (_, one) in enumerate(private_api.lookup_weights(state.model))}
    return variables | _of_optimizers(state)


def _of_optimizers(state: TrainingState) -> dict[str, Any]:
    """The optimizers' variables to save, by the path of their dataset."""
    return {
        f"{name}/vars/{n}": variable
        for name, optimizer in (optimizers(state.model).items() if state.what == "full" else ())
        for n, variable in enumerate(optimizer_variables(optimizer))
    }


def template(paths: list[str], first_token: int) -> bytes:
    """The bytes of an HDF5 file with an int64 scalar at each path: ``first_token`` at the first one, one more at each further one."""
    memory = io.BytesIO()
    with h5py.File(memory, "w") as file:
        for n, path in enumerate(paths):
            file[path] = np.asarray(first_token + n, np.int64)
    return memory.getvalue()
