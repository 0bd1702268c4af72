"""Which variable does Keras keep in which dataset of its weights file?

Found through public API alone, without writing a weight: every object that Keras saves gets, for the length of one
``model.save_weights``, a ``save_own_variables`` of its own that stores a small number in place of each value. Reading the
numbers back from the file (about 30 KB) maps each dataset to its variable. So the paths are Keras's own, whatever the model's
class, and the same file is the template for the real one (``deepfreeze.freeze.skeleton``).

Uses Keras objects, imports neither Keras nor TensorFlow.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import h5py
import numpy as np

from deepfreeze.core.errors import UnsupportedError
from deepfreeze.core.keras_model import is_seed, tf_variable, variable_name
from deepfreeze.core.tensors import PER_RANK, RANK_LOCAL, REPLICATED, TensorSpec

# Tokens are stored as int64 scalars from here on: far from any count that a model would store itself.
_FIRST_TOKEN = 0x0DF0_0000_0000


@dataclass(frozen=True)
class Slot:
    """One saved tensor: the framework's ``variable``, what is known of it, and its ``path``: the dataset in the weights
    file, or ``seeds/N`` for a per-rank tensor, which is in no Keras file."""

    path: str
    variable: Any
    spec: TensorSpec


@dataclass(frozen=True)
class Probe:
    """What a model saves: ``slots``, datasets by path, then seeds; and the ``template`` file's bytes (tokens for values)."""

    slots: tuple[Slot, ...]
    template: bytes


def probe(model: Any, state: str = "full") -> list[Slot]:
    """The model's datasets, sorted by path. ``state="weights"`` leaves the optimizer out. See ``probe_file``."""
    return list(probe_file(model, state).slots)


def probe_file(model: Any, state: str = "full") -> Probe:
    """Maps every dataset of ``model.save_weights()`` to its variable.

    Raises ``UnsupportedError`` for an object that stores something else than its variables' values.
    """
    optimizer = getattr(model, "optimizer", None)
    optimizer_objects = _saveables(optimizer) if optimizer is not None else {}
    objects = _saveables(model) | optimizer_objects
    trainable = {id(v) for v in model.trainable_variables}
    found: list[tuple[Any, bool]] = []

    def recorder(owner: Any, original: Callable) -> Callable:
        is_optimizer = id(owner) in optimizer_objects

        def save_own_variables(store: Any) -> None:
            if is_optimizer and state == "weights":
                return
            recorded: dict[str, Any] = {}
            original(recorded)
            for key, variable in _identify(owner, recorded).items():
                store[key] = np.asarray(_FIRST_TOKEN + len(found), np.int64)
                found.append((variable, is_optimizer))

        return save_own_variables

    with tempfile.TemporaryDirectory(prefix="deepfreeze-") as folder, contextlib.ExitStack() as restore:
        for owner in objects.values():
            restore.enter_context(_shadowed(owner, "save_own_variables", recorder(owner, owner.save_own_variables)))
        file = os.path.join(folder, "probe.weights.h5")
        model.save_weights(file)
        with open(file, "rb") as f:
            template = f.read()
        tokens = _read_tokens(file)

    slots = []
    names: set[str] = set()
    for path, token in sorted(tokens.items()):
        variable, of_optimizer = found[token]
        name = _unique(variable_name(variable), names)
        role = REPLICATED if of_optimizer or id(variable) in trainable else RANK_LOCAL
        slots.append(Slot(path, variable, _spec(name, variable, role)))
    saved = {id(slot.variable) for slot in slots}
    seeds = [v for v in model.variables if is_seed(v) and id(v) not in saved]
    for n, variable in enumerate(seeds if state == "full" else ()):
        slots.append(Slot(f"seeds/{n}", variable, _spec(_unique(variable_name(variable), names), variable, PER_RANK)))
    return Probe(tuple(slots), template)


def _spec(name: str, variable: Any, role: str) -> TensorSpec:
    tensor = tf_variable(variable)
    dtype = tensor.dtype.name
    if dtype not in _PLAIN_DTYPES:
        raise UnsupportedError(
            where=f"variable {name}",
            expected=f"one of the dtypes {', '.join(sorted(_PLAIN_DTYPES))}",
            found=dtype,
            todo="keep this variable out of the model's saved state, or store it in one of these dtypes",
        )
    return TensorSpec(name, dtype, tuple(int(n) for n in tensor.shape), role)


# Stored by HDF5 as they lie in memory.
_PLAIN_DTYPES = frozenset(
    ["float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
)


def _saveables(root: Any) -> dict[int, Any]:
    """Every object below ``root`` that has ``save_own_variables``, by id."""
    found: dict[int, Any] = {}
    pending, seen = [root], set()
    while pending:
        thing = pending.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if isinstance(thing, dict):
            pending.extend(thing.values())
        elif isinstance(thing, (list, tuple, set, frozenset)):
            pending.extend(thing)
        elif callable(getattr(thing, "save_own_variables", None)) and not isinstance(thing, type):
            found[id(thing)] = thing
            pending.extend(vars(thing).values())
        elif type(thing).__name__ in _CONTAINERS:
            pending.extend(vars(thing).values())
    return found


# Keras 2's holders of compiled metrics and losses: no saveables themselves, but on the way to some.
_CONTAINERS = frozenset({"MetricsContainer", "LossesContainer", "CompileMetrics", "CompileLoss"})


def _identify(owner: Any, recorded: dict[str, Any]) -> dict[str, Any]:
    """The variable behind each value that ``owner`` stored."""
    if all(hasattr(value, "path") and hasattr(value, "assign") for value in recorded.values()):
        return recorded
    # Optimizers and Keras 2 hand over arrays: take the owner's own variables in order, and check each.
    own = list(_own_variables(owner))
    if len(own) == len(recorded) and all(_same(v, a) for v, a in zip(own, recorded.values(), strict=True)):
        return dict(zip(recorded, own, strict=True))
    raise UnsupportedError(
        where=f"{type(owner).__name__} {getattr(owner, 'name', '')!r}".replace(" ''", ""),
        expected="an object that saves the values of its variables as they are, in order",
        found=f"{len(recorded)} stored values that are not its {len(own)} variables",
        todo="save the variables unchanged in its save_own_variables",
    )


def _own_variables(owner: Any) -> Iterator[Any]:
    variables = getattr(owner, "variables", ())
    if callable(variables):
        variables = variables()
    # A Keras 2 layer lists its sublayers' variables too (a Keras 3 one never gets here).
    nested = {id(v) for part in getattr(owner, "submodules", ()) for v in getattr(part, "variables", ())}
    is_layer = hasattr(owner, "add_weight")
    return (v for v in variables if not (is_layer and id(v) in nested))


def _same(variable: Any, array: Any) -> bool:
    value, stored = np.asarray(tf_variable(variable)), np.asarray(array)
    return value.dtype == stored.dtype and value.shape == stored.shape and value.tobytes() == stored.tobytes()


def _read_tokens(file: str) -> dict[str, int]:
    tokens: dict[str, int] = {}

    def visit(path: str, item: Any) -> None:
        if not isinstance(item, h5py.Dataset):
            return
        value = int(item[()]) - _FIRST_TOKEN if item.shape == () and item.dtype == np.int64 else -1
        if value < 0:
            raise UnsupportedError(
                where=f"dataset {path} of the model's weights file",
                expected="the value of a variable",
                found="something that no layer, metric or optimizer stored as one of its variables",
                todo="leave it out of the model's save_own_variables",
            )
        tokens[path] = value

    with h5py.File(file, "r") as f:
        f.visititems(visit)
    return tokens


@contextlib.contextmanager
def _shadowed(owner: Any, name: str, value: Any) -> Iterator[None]:
    setattr(owner, name, value)
    try:
        yield
    finally:
        delattr(owner, name)


def _unique(name: str, taken: set[str]) -> str:
    candidate, n = name, 1
    while candidate in taken:
        n += 1
        candidate = f"{name}#{n}"
    taken.add(candidate)
    return candidate
