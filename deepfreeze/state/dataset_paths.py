"""Finds out in which dataset of its weights file Keras keeps each variable.

This needs Keras's public API alone, and no weight is written. During one call of ``model.save_weights``, every object that Keras saves
has a ``save_own_variables`` of this module's, which stores a token (a number) in place of each value. Reading the tokens back from the
file (about 30 KB) tells the variable of each dataset. So the paths are Keras's own, whatever the model's class. The same file is
the template of the model file (``deepfreeze.freeze.skeleton``). Datasets are added for what Keras leaves out: the loss scales of Keras 2,
and variables that no object of the model saves.

Uses Keras objects, imports neither Keras nor TensorFlow.
"""

from __future__ import annotations

import contextlib
import io
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import h5py
import numpy as np

from deepfreeze.errors import UnsupportedError
from deepfreeze.format.dataset_groups import LOSS_SCALE, untracked_path
from deepfreeze.format.structure import KERAS_H5, PLAIN_H5
from deepfreeze.format.tensors import PER_RANK, RANK_LOCAL, TensorSpec
from deepfreeze.frameworks.table import variables_for
from deepfreeze.state import plain_datasets, private_api
from deepfreeze.state.keras_objects import listed_variables, optimizers, saveables, variable_name
from deepfreeze.state.shadow import shadowed
from deepfreeze.state.training_state import METRIC, SEED, StateTensor, TrainingState, unique_name


class Transformed(UnsupportedError):
    """An object of the model stores other values than those of its variables."""


# Token number n is the int64 scalar _FIRST_TOKEN + n: no count that a model stores itself is as large.
_FIRST_TOKEN = 0x0DF0_0000_0000
_CHUNK = 1 << 20  # bytes compared at a time: numpy's intermediate array stays in the processor's cache


@dataclass(frozen=True)
class LocatedTensor:
    """One tensor of a checkpoint. ``path``: the dataset in the model file, or ``seeds/...`` for a per-rank tensor, which is not in the
    model file; ``variable``: the variable of the training state; ``spec``: name (unique in the checkpoint), dtype, shape, role.

    Keras saves some variables in two datasets (tied weights, a variable that an optimizer shares with one that it wraps). Such a
    variable has two tensors."""

    path: str
    variable: Any
    spec: TensorSpec


@dataclass(frozen=True)
class LocatedState:
    """The places of a training state in the model file. ``tensors``: first those of Keras's datasets, sorted by path, then the seeds, then
    those that Keras leaves out;
    ``template``: the bytes of an HDF5 file with the model file's groups, in which each dataset is an int64 scalar; ``layout``: one of
    ``format.structure.LAYOUTS``; ``reason``: why Keras can't save this model's variables as they are, None if it can or if the model is
    a ``tf.Module``."""

    tensors: tuple[LocatedTensor, ...]
    template: bytes
    layout: str
    reason: UnsupportedError | None = None

    @property
    def warning(self) -> str | None:
        """The message for the user if there is a ``reason``: stock Keras can't load the model file then."""
        if self.reason is None:
            return None
        return (
            f"{self.reason} The file has all variables as they are instead (layout {self.layout}): stock Keras can't load it, "
            "deepfreeze.restore can, and deepfreeze.export writes .safetensors"
        )


def locate(state: TrainingState, layout: str = KERAS_H5) -> LocatedState:
    """Finds the dataset of every variable that ``model.save_weights()`` saves. Takes 0.1 to 1.3 s. ``layout``: of the file, if there is one
    already; with ``PLAIN_H5`` Keras is not asked.

    If an object of the model stores other values than those of its variables (LoRA), or the model is a ``tf.Module``, every variable gets
    a dataset under DeepFreeze's own path (``plain_datasets``). ``UnsupportedError`` for a model that is neither a Keras model nor a
    ``tf.Module``, and for an object that saves a variable which the state does not have.
    """
    variables_for(state.model).settle(state.model)  # Keras stores values, and optimizers are known by theirs
    reason = None
    if hasattr(state.model, "save_weights"):
        if layout == PLAIN_H5:
            variables = plain_datasets.of_model(state)
        else:
            try:
                variables, template = _ask_keras(state)
            except Transformed as error:
                variables, layout, reason = plain_datasets.of_model(state), PLAIN_H5, error
    else:
        variables, layout = plain_datasets.of_module(state), PLAIN_H5
    if layout == PLAIN_H5:
        template = plain_datasets.template(list(variables), _FIRST_TOKEN)
    located: list[LocatedTensor] = []
    lookups = {id(variable): name for name, variable in private_api.lookup_weights(state.model)}
    names: set[str] = set()
    for path, variable in sorted(variables.items()):
        tensor = state.find(variable)
        if tensor is None:
            raise _unlisted(variable, path)
        # A seed that Keras saves is in the model file, which has rank 0's value.
        role = RANK_LOCAL if tensor.kind == SEED else tensor.spec.role
        name = unique_name(lookups.get(id(variable)) or variable_name(variable), names)
        located.append(LocatedTensor(path, tensor.variable, replace(tensor.spec, name=name, role=role)))
    seeds = _without_dataset(state, located, state.of_kind(SEED))
    for n, tensor in enumerate(seeds):
        spec = replace(tensor.spec, name=unique_name(tensor.spec.name, names))
        located.append(LocatedTensor(f"seeds/{n}", tensor.variable, spec))
    # Metrics begin anew with each epoch, and Keras 3 saves none.
    others = [tensor for tensor in state.tensors if tensor.kind not in (METRIC, SEED)]
    # With the groups: an attribute of the user's model may be called as the group of such variables is.
    paths = {
        "/".join(parts[:n])
        for tensor in located
        for parts in [tensor.path.split("/")]
        for n in range(1, len(parts) + 1)
    }
    added = []
    for tensor in _without_dataset(state, located, others):
        private = tensor.spec.role == PER_RANK
        path = untracked_path(variable_name(tensor.variable), paths, private)
        paths.add(path)
        added += [] if private else [path]
        spec = replace(tensor.spec, name=unique_name(variable_name(tensor.variable), names))
        located.append(LocatedTensor(path, tensor.variable, spec))
    if added:
        template = _with_datasets(template, added)
    return LocatedState(tuple(located), template, layout, reason)


def _without_dataset(
    state: TrainingState, located: list[LocatedTensor], tensors: list[StateTensor]
) -> list[StateTensor]:
    """Those of the ``tensors`` that belong into a checkpoint and are not ``located`` yet."""
    saved = {id(tensor.variable) for tensor in located}
    return [
        tensor
        for tensor in tensors
        if id(tensor.variable) not in saved and (state.what == "full" or tensor.spec.role != PER_RANK)
    ]


def _with_datasets(template: bytes, paths: list[str]) -> bytes:
    """The bytes of the file ``template`` with a scalar more at each of the ``paths``."""
    memory = io.BytesIO(template)
    with h5py.File(memory, "r+") as file:
        for path in paths:
            file[path] = np.asarray(_FIRST_TOKEN, np.int64)
    return memory.getvalue()


def _unlisted(variable: Any, path: str) -> UnsupportedError:
    return UnsupportedError(
        where=f"variable {variable_name(variable)}, saved as {path}",
        expected="a variable that the model, or one of its optimizers, lists among its variables",
        found="one that an object of the model saves and none of them lists",
        todo="track it: make it an attribute of a layer, or leave it out of that object's save_own_variables",
    )


def _ask_keras(state: TrainingState) -> tuple[dict[str, Any], bytes]:
    """The variable of every dataset, by path; and the bytes of the file, which has tokens for values."""
    model, value = state.model, variables_for(state.model).value
    optimizer_objects: dict[int, Any] = {}
    for optimizer in optimizers(model).values():
        optimizer_objects |= saveables(optimizer)
    objects = saveables(model) | optimizer_objects
    variables: list[Any] = []  # token number n stands for variable n
    recording: list[Any] = []  # the object that stores its values now

    def recorder(owner: Any, original: Callable) -> Callable:
        def save_own_variables(store: Any) -> None:
            if state.what == "weights" and id(owner) in optimizer_objects:
                return
            if recording:  # another object stores this one's values among its own, as TextVectorization does
                original(store)
                return
            recorded: dict[str, Any] = {}
            recording.append(owner)
            try:
                original(recorded)
            finally:
                recording.pop()
            for key, variable in identify(owner, recorded, value).items():
                store[key] = np.asarray(_FIRST_TOKEN + len(variables), np.int64)
                variables.append(variable)

        return save_own_variables

    with tempfile.TemporaryDirectory(prefix="deepfreeze-") as folder, contextlib.ExitStack() as restore:
        for owner in objects.values():
            restore.enter_context(shadowed(owner, "save_own_variables", recorder(owner, owner.save_own_variables)))
        if not getattr(model, "built", True):
            # Keras calls a model built when its own ``call`` has run, and saves no other. A model with a train_step may have no ``call``.
            restore.enter_context(shadowed(model, "built", True))
        file = os.path.join(folder, "probe.weights.h5")
        model.save_weights(file)
        if state.what == "full":
            _add_loss_scales(file, model, variables)
        with open(file, "rb") as f:
            template = f.read()
        tokens = _read_tokens(file)
    return {path: variables[token] for path, token in tokens.items()}, template


def _add_loss_scales(file: str, model: Any, variables: list[Any]) -> None:
    """Adds datasets to ``file`` for the loss scales, which Keras 2 leaves out, and the variables that they stand for to ``variables``."""
    with h5py.File(file, "r+") as f:
        for owner, optimizer in optimizers(model).items():
            for number, variable in enumerate(private_api.loss_scale(optimizer)):
                f[f"{owner}/{LOSS_SCALE}/vars/{number}"] = np.asarray(_FIRST_TOKEN + len(variables), np.int64)
                variables.append(variable)


def identify(owner: Any, recorded: dict[str, Any], value: Callable[[Any], np.ndarray]) -> dict[str, Any]:
    """The variable of each value that ``owner`` has stored, by the key under which it was stored. ``value``: returns that of a variable
    (``Variables.value``). ``Transformed`` if the values are not those of the owner's variables."""
    if all(hasattr(value, "path") and hasattr(value, "assign") for value in recorded.values()):
        return recorded  # Keras 3's layers store the variables themselves
    # Optimizers, and all objects of Keras 2, store arrays: they are compared with the values of the owner's variables, in order. A Keras
    # 2 layer with sublayers stores either its own variables alone or, if it shares one with a sublayer (tied weights), all of them.
    listed = _variables(owner)
    own = _without_nested(owner, listed)
    for candidates in (own, listed):
        if len(candidates) == len(recorded) and all(map(_has_value, map(value, candidates), recorded.values())):
            return dict(zip(recorded, candidates, strict=True))
    package = type(owner).save_own_variables.__module__.partition(".")[0]
    of_keras = package in ("keras", "tf_keras")
    raise Transformed(
        where=f"{type(owner).__name__} {getattr(owner, 'name', '')!r}".replace(" ''", ""),
        expected="an object that saves the values of its variables as they are, in order",
        found=f"{len(recorded)} stored values that are not its {len(own)} variables",
        todo="so Keras's own class saves them, and nothing in the program is to be changed"
        if of_keras
        else "save the variables unchanged in its save_own_variables",
    )


def _variables(owner: Any) -> list[Any]:
    return [*listed_variables(owner), *(variable for _, variable in private_api.lookup_weights(owner))]


def _without_nested(owner: Any, variables: list[Any]) -> list[Any]:
    """The variables of a Keras 2 layer without those of its sublayers; of another object all of them."""
    nested = {id(v) for module in getattr(owner, "submodules", ()) for v in getattr(module, "variables", ())}
    is_layer = hasattr(owner, "add_weight")
    return [v for v in variables if not (is_layer and id(v) in nested)]


def _has_value(value: np.ndarray, array: Any) -> bool:
    """Whether a variable's ``value`` has the array's dtype, shape and bytes."""
    stored = np.asarray(array)
    if value.dtype != stored.dtype or value.shape != stored.shape:
        return False
    a, b = (np.ascontiguousarray(each).reshape(-1).view(np.uint8) for each in (value, stored))
    return all(np.array_equal(a[n : n + _CHUNK], b[n : n + _CHUNK]) for n in range(0, len(a), _CHUNK))


def _read_tokens(file: str) -> dict[str, int]:
    """The number of the token in each dataset, by path. ``Transformed`` for a dataset with another value."""
    tokens: dict[str, int] = {}

    def visit(path: str, item: Any) -> None:
        if not isinstance(item, h5py.Dataset):
            return
        value = int(item[()]) - _FIRST_TOKEN if item.shape == () and item.dtype == np.int64 else -1
        if value < 0:
            raise Transformed(
                where=f"dataset {path} of the model's weights file",
                expected="the value of a variable",
                found="a value that no layer, metric or optimizer has stored as one of its variables",
                todo="leave it out of the model's save_own_variables",
            )
        tokens[path] = value

    with h5py.File(file, "r") as f:
        f.visititems(visit)
    return tokens
