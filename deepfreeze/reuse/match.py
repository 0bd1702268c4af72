"""Which weight of a checkpoint is which variable of a model, by name; and what Keras's own numbering does to names.

Keras names a layer that got no name after its class, and counts: ``dense``, ``dense_1``. It counts per process, not per model,
so the same program's second model has ``dense_2`` and ``dense_3``. Taken at their word such names would fail to match, or match
the wrong layer. So layers are compared in families of equal names but for these numbers:

- A family that begins with the same number on both sides is counted alike: its layers go by name.
- One that has no name in common is taken in order, if both sides have as many: by the layers' places in the weights file
  where these are the same, as ``restore`` does, else by number.
- One that begins differently and yet has names in common can be read both ways. If the shapes rule out the names, the order
  is meant; else it is ambiguous, and whoever calls must say what is meant.

Names that people gave are always taken at their word. Uses Keras objects, imports neither Keras nor TensorFlow.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from deepfreeze.format.tensors import TensorSpec
from deepfreeze.state.keras_objects import saveables

_NUMBER = re.compile(r"(.+?)_([1-9][0-9]{0,8})")
# A layer's variable that got no name.
_NAMELESS = "variable"


@dataclass(frozen=True, eq=False)
class Weight:
    """One of either side: what it is, its dataset, its ``name`` in the model's terms, and ``rest``: the end of that name
    that was not given by the caller."""

    spec: TensorSpec
    path: str
    name: str
    rest: str


@dataclass(frozen=True)
class Matches:
    """``saved``: the checkpoint's weights as they were compared; ``pairs`` of one of these and the model's; ``unclear``: families
    that can be read in two ways, as the names of the layers on both sides and the checkpoint's weights concerned."""

    saved: Sequence[Weight]
    pairs: list[tuple[Weight, Weight]]
    unclear: list[tuple[list[str], list[str], list[Weight]]]


def numbered(model: Any) -> frozenset[str]:
    """The names without number that Keras gave to layers of ``model`` by itself: their classes', as ``dense``."""
    found = set()
    for layer in saveables(model).values():
        base = _split(getattr(layer, "name", None) or "")[0]
        # Bidirectional names its two parts after the layer that it was given.
        plain = re.sub(r"^(forward|backward)_", "", base)
        if plain.replace("_", "") == type(layer).__name__.replace("_", "").lower():
            found.add(base)
    return frozenset(found)


def match(saved: Sequence[Weight], own: Sequence[Weight], bases: frozenset[str]) -> Matches:
    """Pairs a checkpoint's weights with a model's; ``bases`` as of ``numbered``. Shapes need not agree."""
    by_name = {weight.name: weight for weight in own}
    pairs = []
    rest = []
    # What the caller has named goes first: it may take the place of a weight that has this name by itself.
    for weight in sorted(saved, key=lambda weight: weight.rest == weight.name):
        if _is_counted(weight.rest, bases):
            rest.append(weight)
        elif weight.name in by_name:
            pairs.append((weight, by_name.pop(weight.name)))
    unclear = []
    theirs, ours = _families(rest, bases), _families(by_name.values(), bases)
    for key in (key for key in theirs if key in ours):
        layers = _pair(theirs[key], ours[key])
        if layers is None:
            weights = [weight for layer in theirs[key] for weight in layer.weights.values()]
            unclear.append(([one.name for one in theirs[key]], [one.name for one in ours[key]], weights))
            continue
        for one, other in layers:
            pairs += [(weight, other.weights[last]) for last, weight in one.weights.items() if last in other.weights]
    return Matches(saved, pairs, unclear)


@dataclass
class _Layer:
    """What owns variables, by the last component of their names."""

    name: str
    numbers: tuple[int, ...]
    weights: dict[str, Weight] = field(default_factory=dict)

    @property
    def place(self) -> str:
        """Where it is in the weights file."""
        return next(iter(self.weights.values())).path.rpartition("/vars/")[0]


def _split(component: str) -> tuple[str, int]:
    """Takes the number off that Keras puts behind a name; the first one has none."""
    found = _NUMBER.fullmatch(component)
    return (found[1], int(found[2])) if found else (component, 0)


def _is_counted(name: str, bases: frozenset[str]) -> bool:
    """Whether any part of a name may have been given by Keras."""
    *owners, last = name.split("/")
    return any(_split(owner)[0] in bases for owner in owners) or _split(last)[0] == _NAMELESS


def _families(weights: Iterable[Weight], bases: frozenset[str]) -> dict[str, list[_Layer]]:
    """Layers by their name without Keras's numbers, each family sorted by these."""
    layers: dict[str, _Layer] = {}
    for weight in weights:
        owner, _, last = weight.name.rpartition("/")
        if owner not in layers:
            layers[owner] = _Layer(owner, tuple(n for base, n in map(_split, owner.split("/")) if base in bases))
        layers[owner].weights[last] = weight
    families: dict[str, list[_Layer]] = {}
    for layer in layers.values():
        parts = map(_split, layer.name.split("/"))
        key = "/".join(base if base in bases or not n else f"{base}_{n}" for base, n in parts)
        families.setdefault(key, []).append(layer)
        _count_nameless(layer)
    for family in families.values():
        family.sort(key=lambda layer: layer.numbers)
    return families


def _count_nameless(layer: _Layer) -> None:
    """Numbers a layer's nameless variables from 0, in order: Keras counts them per process too."""
    nameless = sorted(
        (last for last in layer.weights if _split(last)[0] == _NAMELESS), key=lambda last: _split(last)[1]
    )
    taken = [layer.weights.pop(last) for last in nameless]
    layer.weights.update((f"{_NAMELESS}_{n}", weight) for n, weight in enumerate(taken))


def _pair(theirs: list[_Layer], ours: list[_Layer]) -> list[tuple[_Layer, _Layer]] | None:
    """The layers of one family; None if it can be read in two ways."""
    names = {layer.name: layer for layer in ours}
    by_name = [(layer, names[layer.name]) for layer in theirs if layer.name in names]
    if theirs[0].numbers == ours[0].numbers:
        return by_name
    if not by_name:
        return _in_order(theirs, ours) if len(theirs) == len(ours) else []
    if len(theirs) == len(ours) and not any(_alike(*pair) for pair in by_name):
        return _in_order(theirs, ours)
    return None


def _in_order(theirs: list[_Layer], ours: list[_Layer]) -> list[tuple[_Layer, _Layer]]:
    places = {layer.place: layer for layer in ours}
    if len(places) == len(ours) and places.keys() == {layer.place for layer in theirs}:
        return [(layer, places[layer.place]) for layer in theirs]
    return list(zip(theirs, ours, strict=True))


def _alike(one: _Layer, other: _Layer) -> bool:
    """Whether two layers' variables of the same names have the same shapes."""
    common = one.weights.keys() & other.weights.keys()
    return bool(common) and all(one.weights[key].spec.shape == other.weights[key].spec.shape for key in common)
