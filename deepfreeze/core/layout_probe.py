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
from dataclasses import dataclass
from typing import Any

import h5py
import numpy as np

from deepfreeze.core import plain_probe
from deepfreeze.core.errors import UnsupportedError
from deepfreeze.core.keras_model import optimizer_variables, optimizers, saveables, seeds, tf_variable, variable_name
from deepfreeze.core.shadow import shadowed
from deepfreeze.core.structure import KERAS_H5, PLAIN_H5
from deepfreeze.core.tensors import DTYPES, PER_RANK, RANK_LOCAL, REPLICATED, TensorSpec

log = logging.getLogger("deepfreeze")


class _Transformed(UnsupportedError):
    """An object stores something else than its variables' values."""


# Tokens are stored as int64 scalars from here on: far from any count that a model would store itself.
_FIRST_TOKEN = 0x0DF0_0000_0000
_PIECE = 1 << 20  # bytes compared at a time: what numpy makes of them stays in the processor's cache


@dataclass(frozen=True)
class Slot:
    """One saved tensor: the framework's ``variable``, what is known of it, and its ``path``: the dataset in the weights
    file, or ``seeds/N`` for a per-rank tensor, which is in no Keras file."""

    path: str
    variable: Any
    spec: TensorSpec


@dataclass(frozen=True)
class Probe:
    """What a model saves: ``slots``, datasets by path, then seeds; the ``template`` file's bytes (tokens for values); and whose
    ``layout`` that file has (see ``core/structure``)."""

    slots: tuple[Slot, ...]
    template: bytes
    layout: str


def probe(model: Any, state: str = "full") -> list[Slot]:
    """The model's datasets, sorted by path. ``state="weights"`` leaves the optimizer out. See ``probe_file``."""
    return list(_probe(model, state)[0].slots)


def probe_file(model: Any, state: str = "full") -> Probe:
    """Maps every dataset of ``model.save_weights()`` to its variable.

    Where an object stores something else than its variables' values, all variables are saved as they are instead, with a warning
    in the log. ``UnsupportedError`` for a variable that is no plain tensor.
    """
    found, reason = _probe(model, state)
    if reason is not None:
        log.warning(
            "%s The file has all variables as they are instead (layout %s): stock Keras can't load it, deepfreeze.restore can, "
            "and deepfreeze.export writes .safetensors",
            reason,
            found.layout,
        )
    return found


def _probe(model: Any, state: str) -> tuple[Probe, _Transformed | None]:
    """The probe, and what kept a Keras model from its own layout."""
    reason = None
    if hasattr(model, "save_weights"):
        try:
            variables, template = _probe_keras(model, state)
            layout = KERAS_H5
        except _Transformed as error:
            variables, layout, reason = plain_probe.of_model(model, state), PLAIN_H5, error
    else:
        variables, layout = plain_probe.of_module(model, state), PLAIN_H5
    if layout == PLAIN_H5:
        template = plain_probe.template(list(variables), _FIRST_TOKEN)
    trained = {id(v) for v in model.trainable_variables}
    trained |= {id(v) for optimizer in optimizers(model).values() for v in optimizer_variables(optimizer)}
    slots = []
    names: set[str] = set()
    for path, variable in sorted(variables.items()):
        name = _unique(variable_name(variable), names)
        role = REPLICATED if id(variable) in trained else RANK_LOCAL
        slots.append(Slot(path, variable, _spec(name, variable, role)))
    saved = {id(slot.variable) for slot in slots}
    own = [(name, v) for name, v in seeds(model) if id(v) not in saved and state == "full"]
    for n, (name, variable) in enumerate(own):
        slots.append(Slot(f"seeds/{n}", variable, _spec(_unique(name, names), variable, PER_RANK)))
    return Probe(tuple(slots), template, layout), reason


def _probe_keras(model: Any, state: str) -> tuple[dict[str, Any], bytes]:
    """Every dataset's variable, and the file with tokens for values."""
    optimizer_objects = {key: thing for one in optimizers(model).values() for key, thing in saveables(one).items()}
    objects = saveables(model) | optimizer_objects
    found: list[Any] = []

    def recorder(owner: Any, original: Callable) -> Callable:
        def save_own_variables(store: Any) -> None:
            if state == "weights" and id(owner) in optimizer_objects:
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


def _spec(name: str, variable: Any, role: str) -> TensorSpec:
    tensor = tf_variable(variable)
    dtype = tensor.dtype.name
    if dtype not in DTYPES:
        raise UnsupportedError(
            where=f"variable {name}",
            expected=f"one of the dtypes {', '.join(sorted(DTYPES))}",
            found=dtype,
            todo="keep this variable out of the model's saved state, or store it in one of these dtypes",
        )
    return TensorSpec(name, dtype, tuple(int(n) for n in tensor.shape), role)


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


def _unique(name: str, taken: set[str]) -> str:
    candidate, n = name, 1
    while candidate in taken:
        n += 1
        candidate = f"{name}#{n}"
    taken.add(candidate)
    return candidate
