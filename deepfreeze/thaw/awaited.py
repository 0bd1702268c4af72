"""The values of a restored checkpoint whose variables are not known yet. What a step writes besides its model's variables is seen when the
step is traced; until then a checkpoint's values for it wait here, with the model.

Uses Keras objects, imports neither Keras nor TensorFlow.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Mapping
from typing import Any, TypeVar

from deepfreeze.format.tensors import REPLICATED, TensorSpec
from deepfreeze.frameworks.memory import Room
from deepfreeze.state.keras_objects import is_built, optimizers
from deepfreeze.state.training_state import TrainingState

T = TypeVar("T")

# By the model, then by the tensor's description.
_awaited: weakref.WeakKeyDictionary[Any, dict[TensorSpec, Room]] = weakref.WeakKeyDictionary()


def may_wait(spec: TensorSpec, model: Any) -> bool:
    """Whether the variable of a tensor that Keras leaves out may still be made, or seen. What an optimizer trains is known as soon as the
    optimizer is built."""
    if spec.role != REPLICATED:
        return True
    found = optimizers(model).values()
    return not found or not all(map(is_built, found))


def keep(model: Any, rooms: Mapping[TensorSpec, Room], replace: bool) -> None:
    """Keeps values until ``fill`` finds their variables. ``replace``: those that were kept before are forgotten."""
    kept = {} if replace else _awaited.get(model, {})
    kept |= rooms
    if kept:
        _awaited[model] = kept
    else:
        _awaited.pop(model, None)


def left(model: Any) -> list[TensorSpec]:
    """The tensors whose values still wait."""
    return list(_awaited.get(model, ()))


def forget(model: Any) -> list[TensorSpec]:
    """Forgets the values that still wait, and returns their tensors."""
    return list(_awaited.pop(model, {}))


def fill(state: TrainingState) -> None:
    """Gives the variables of ``state`` that Keras leaves out the values that wait for them. To be called outside of any graph."""
    waiting = _awaited.get(state.model)
    if waiting:
        for spec, variable in pairs(
            {one: one for one in waiting}, {one.spec: one.variable for one in state.unlisted()}
        ):
            waiting.pop(spec).assign(variable)


def pairs(saved: Mapping[TensorSpec, T], own: Mapping[TensorSpec, Any]) -> list[tuple[T, Any]]:
    """Pairs a checkpoint's tensors that Keras leaves out with a model's, by name, dtype and shape.

    Keras counts the layers of a process, so a second model of the process has other numbers in its names. Tensors whose names differ in
    numbers alone form a family. Both sides' families are paired by name if they have the same names, else in order if they have as many
    members, else not at all."""
    found = []
    theirs, ours = _families(saved), _families(own)
    for family in theirs.keys() & ours.keys():
        one, other = theirs[family], ours[family]
        names = {spec.name: spec for spec in other}
        if {spec.name for spec in one} <= names.keys():
            found += [(saved[spec], own[names[spec.name]]) for spec in one]
        elif len(one) == len(other):
            found += [(saved[a], own[b]) for a, b in zip(one, other)]
    return found


def _families(specs: Mapping[TensorSpec, Any]) -> dict[tuple[str, str, tuple[int, ...]], list[TensorSpec]]:
    families: dict[tuple[str, str, tuple[int, ...]], list[TensorSpec]] = {}
    for spec in specs:
        families.setdefault((re.sub(r"_[0-9]+(?=/|#|\Z)|#[0-9]+\Z", "", spec.name), spec.dtype, spec.shape), []).append(
            spec
        )
    return families
