"""Which variable does Keras keep in which dataset of its weights file?

Found through public API alone, without writing a weight: every object that Keras saves gets, for the length of one
``model.save_weights``, a ``save_own_variables`` of its own that stores a small number in place of each value. Reading the
numbers back from the file (about 30 KB) maps each dataset to its variable. So the paths are Keras's own, whatever the model's
class, and the same file is the template for the real one (``deepfreeze.freeze.skeleton``).

Uses Keras objects, imports neither Keras nor TensorFlow.
"""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import h5py
import numpy as np

from deepfreeze.errors import UnsupportedError
from deepfreeze.format.structure import KERAS_H5, PLAIN_H5
from deepfreeze.format.tensors import RANK_LOCAL, TensorSpec
from deepfreeze.state import plain_datasets
from deepfreeze.state.keras_objects import optimizers, saveables, tf_variable, variable_name
from deepfreeze.state.shadow import shadowed
from deepfreeze.state.training_state import SEED, TrainingState, unique_name

log = logging.getLogger("deepfreeze")


class _Transformed(UnsupportedError):
    """An object stores something else than its variables' values."""


# Tokens are stored as int64 scalars from here on: far from any count that a model would store itself.
_FIRST_TOKEN = 0x0DF0_0000_0000
_PIECE = 1 << 20  # bytes compared at a time: what numpy makes of them stays in the processor's cache


@dataclass(frozen=True)
class LocatedTensor:
    """One tensor of a checkpoint: a ``variable`` of the state, its ``spec``, and its ``path``: the dataset in the model file, or
    ``seeds/N`` for a per-rank tensor, which is in no model file. Keras saves some variables in two datasets (tied weights, a
    variable that an optimizer shares with one that it wraps): each is a tensor of its own."""

    path: str
    variable: Any
    spec: TensorSpec


@dataclass(frozen=True)
class LocatedState:
    """Where a training state lies in the model file. ``tensors``: datasets sorted by path, then seeds; ``template``: the bytes of a
    file with Keras's groups, in which each dataset is a scalar; ``layout``: whose layout that file has (``format.structure``);
    ``reason``: why it is not Keras's own, None if it is."""

    tensors: tuple[LocatedTensor, ...]
    template: bytes
    layout: str
    reason: UnsupportedError | None = None

    def warn(self) -> None:
        """Says in the log why stock Keras can't load the file, if it can't."""
        if self.reason is not None:
            log.warning(
                "%s The file has all variables as they are instead (layout %s): stock Keras can't load it, deepfreeze.restore can, "
                "and deepfreeze.export writes .safetensors",
                self.reason,
                self.layout,
            )


def locate(state: TrainingState) -> LocatedState:
    """Asks the model for the dataset of every variable that ``model.save_weights()`` saves. Takes 0.1 to 1.3 s.

    Where an object stores something else than its variables' values, all variables are saved as they are instead
    (``plain_datasets``). ``UnsupportedError`` for an object that can't name its variables, or saves a variable that the state lacks.
    """
    reason = None
    if hasattr(state.model, "save_weights"):
        try:
            variables, template = _ask_keras(state)
            layout = KERAS_H5
        except _Transformed as error:
            variables, layout, reason = plain_datasets.of_model(state), PLAIN_H5, error
    else:
        variables, layout = plain_datasets.of_module(state), PLAIN_H5
    if layout == PLAIN_H5:
        template = plain_datasets.template(list(variables), _FIRST_TOKEN)
    located: list[LocatedTensor] = []
    names: set[str] = set()
    for path, variable in sorted(variables.items()):
        tensor = state.find(variable)
        if tensor is None:
            raise _unlisted(variable, path)
        # The model file has rank 0's value of a seed that Keras saves.
        role = RANK_LOCAL if tensor.kind == SEED else tensor.spec.role
        name = unique_name(variable_name(variable), names)
        located.append(LocatedTensor(path, tensor.variable, replace(tensor.spec, name=name, role=role)))
    saved = {id(one.variable) for one in located}
    seeds = [tensor for tensor in state.of_kind(SEED) if id(tensor.variable) not in saved and state.what == "full"]
    for n, tensor in enumerate(seeds):
        spec = replace(tensor.spec, name=unique_name(tensor.spec.name, names))
        located.append(LocatedTensor(f"seeds/{n}", tensor.variable, spec))
    return LocatedState(tuple(located), template, layout, reason)


def _unlisted(variable: Any, path: str) -> UnsupportedError:
    return UnsupportedError(
        where=f"variable {variable_name(variable)}, saved as {path}",
        expected="a variable that the model, or one of its optimizers, lists among its variables",
        found="one that an object of the model saves and none of them lists",
        todo="track it: make it an attribute of a layer, or leave it out of that object's save_own_variables",
    )


def _ask_keras(state: TrainingState) -> tuple[dict[str, Any], bytes]:
    """Every dataset's variable, and the file with tokens for values."""
    model = state.model
    optimizer_objects = {key: thing for one in optimizers(model).values() for key, thing in saveables(one).items()}
    objects = saveables(model) | optimizer_objects
    found: list[Any] = []

    def recorder(owner: Any, original: Callable) -> Callable:
        def save_own_variables(store: Any) -> None:
            if state.what == "weights" and id(owner) in optimizer_objects:
                return
            recorded: dict[str, Any] = {}
            original(recorded)
            for key, variable in _identify(owner, recorded).items():
                store[key] = np.asarray(_FIRST_TOKEN + len(found), np.int64)
                found.append(variable)

        return save_own_variables

    with tempfile.TemporaryDirectory(prefix="deepfreeze-") as folder, contextlib.ExitStack() as restore:
        for owner in objects.values():
            restore.enter_context(shadowed(owner, "save_own_variables", recorder(owner, owner.save_own_variables)))
        file = os.path.join(folder, "probe.weights.h5")
        model.save_weights(file)
        with open(file, "rb") as f:
            template = f.read()
        tokens = _read_tokens(file)
    return {path: found[token] for path, token in tokens.items()}, template


def _identify(owner: Any, recorded: dict[str, Any]) -> dict[str, Any]:
    """The variable behind each value that ``owner`` stored."""
    if all(hasattr(value, "path") and hasattr(value, "assign") for value in recorded.values()):
        return recorded
    # Optimizers and Keras 2 hand over arrays: take the owner's own variables in order, and check each. A Keras 2 layer that
    # holds another's variable (tied weights) and the other itself keeps it as its own, too.
    listed = _variables(owner)
    own = _without_nested(owner, listed)
    for taken in (own, listed):
        if len(taken) == len(recorded) and all(_same(v, a) for v, a in zip(taken, recorded.values(), strict=True)):
            return dict(zip(recorded, taken, strict=True))
    raise _Transformed(
        where=f"{type(owner).__name__} {getattr(owner, 'name', '')!r}".replace(" ''", ""),
        expected="an object that saves the values of its variables as they are, in order",
        found=f"{len(recorded)} stored values that are not its {len(own)} variables",
        todo="save the variables unchanged in its save_own_variables",
    )


def _variables(owner: Any) -> list[Any]:
    variables = getattr(owner, "variables", ())
    return list(variables() if callable(variables) else variables)


def _without_nested(owner: Any, variables: list[Any]) -> list[Any]:
    # A Keras 2 layer lists its sublayers' variables too (a Keras 3 one never gets here).
    nested = {id(v) for part in getattr(owner, "submodules", ()) for v in getattr(part, "variables", ())}
    is_layer = hasattr(owner, "add_weight")
    return [v for v in variables if not (is_layer and id(v) in nested)]


def _same(variable: Any, array: Any) -> bool:
    value, stored = _value(variable), np.asarray(array)
    if value.dtype != stored.dtype or value.shape != stored.shape:
        return False
    mine, theirs = (np.ascontiguousarray(each).reshape(-1).view(np.uint8) for each in (value, stored))
    return all(np.array_equal(mine[n : n + _PIECE], theirs[n : n + _PIECE]) for n in range(0, len(mine), _PIECE))


def _value(variable: Any) -> np.ndarray:
    """A variable's value, not copied where the framework lends its memory: an optimizer may be larger than what is free."""
    tensor = tf_variable(variable).value()
    try:
        return np.asarray(memoryview(tensor))
    except (BufferError, TypeError, ValueError):  # bfloat16, or not in host memory
        return np.asarray(tensor)


def _read_tokens(file: str) -> dict[str, int]:
    tokens: dict[str, int] = {}

    def visit(path: str, item: Any) -> None:
        if not isinstance(item, h5py.Dataset):
            return
        value = int(item[()]) - _FIRST_TOKEN if item.shape == () and item.dtype == np.int64 else -1
        if value < 0:
            raise _Transformed(
                where=f"dataset {path} of the model's weights file",
                expected="the value of a variable",
                found="something that no layer, metric or optimizer stored as one of its variables",
                todo="leave it out of the model's save_own_variables",
            )
        tokens[path] = value

    with h5py.File(file, "r") as f:
        f.visititems(visit)
    return tokens
