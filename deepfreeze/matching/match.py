"""Pairs the weights of two sides by name, and sees through the numbers that Keras puts behind names. One side is a checkpoint; the other
is a model, or another checkpoint.

Keras names a layer that got no name from the user after its class, and counts: ``dense``, ``dense_1``. It counts per process, not per
model, so the same program's second model has ``dense_2`` and ``dense_3``. Compared as they are, such names would not match, or would match
the wrong layer. So layers whose names differ only in these numbers form a family, and the families of both sides are compared:

- A family that begins with the same number on both sides: its layers are paired by name.
- A family that has no name in common, and as many layers on both sides: its layers are paired in order. The order is that of the
  layers' places in the weights file if these are the same on both sides, as ``restore`` does it, else that of the numbers.
- A family that begins with different numbers and yet has names in common: both ways are possible. If the shapes rule out the pairs
  by name, the layers are paired in order; else the family is ambiguous, and the caller must say what is meant.

Names that users have given are compared as they are. The caller knows which names are Keras's: a model's layers tell
(``reuse/model_weights``), and so do the places in a model file (``inspect/pairs``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from deepfreeze.format.tensors import TensorSpec

_NUMBER = re.compile(r"(.+?)_([1-9][0-9]{0,8})")
# Keras's name of a layer's variable that got no name from the user.
_NAMELESS = "variable"


@dataclass(frozen=True, eq=False)
class Weight:
    """A weight of either side. ``spec``: its name, dtype and shape there; ``path``: its dataset; ``name``: the name by which it is
    compared, after renaming; ``rest``: the end of ``name`` that renaming has not changed, all of it where nothing was renamed."""

    spec: TensorSpec
    path: str
    name: str
    rest: str


@dataclass(frozen=True)
class Renamed:
    """A weight's new ``name``. ``rest``: the last components of ``name``, which renaming did not change; "" if it changed all."""

    name: str
    rest: str


@dataclass(frozen=True)
class Matches:
    """``saved``: the checkpoint's weights as they were compared; ``pairs``: (weight of the checkpoint, weight of the other side);
    ``unclear``: each ambiguous family, as (names of the checkpoint's layers, names of the other side's, the checkpoint's weights in it)."""

    saved: Sequence[Weight]
    pairs: list[tuple[Weight, Weight]]
    unclear: list[tuple[list[str], list[str], list[Weight]]]


def match(saved: Sequence[Weight], own: Sequence[Weight], bases: frozenset[str]) -> Matches:
    """Pairs a checkpoint's weights with the other side's. ``bases``: the names, without numbers, that Keras itself has given to layers,
    such as ``dense``. The shapes of a pair may differ."""
    by_name = {weight.name: weight for weight in own}
    pairs = []
    counted = []
    # Renamed weights come first: one may be renamed to the name that another weight of the checkpoint has.
    for weight in sorted(saved, key=lambda weight: weight.rest == weight.name):
        if _is_counted(weight.rest, bases):
            counted.append(weight)
        elif weight.name in by_name:
            pairs.append((weight, by_name.pop(weight.name)))
    unclear = []
    theirs, ours = _families(counted, bases), _families(by_name.values(), bases)
    for key in (key for key in theirs if key in ours):
        layers = _pair(theirs[key], ours[key])
        if layers is None:
            weights = [weight for layer in theirs[key] for weight in layer.weights.values()]
            unclear.append(([layer.name for layer in theirs[key]], [layer.name for layer in ours[key]], weights))
            continue
        for one, other in layers:
            pairs += [(weight, other.weights[last]) for last, weight in one.weights.items() if last in other.weights]
    return Matches(saved, pairs, unclear)


@dataclass
class _Layer:
    """A layer with weights. ``numbers``: the numbers that Keras has put behind the components of its name, 0 where there is none;
    ``weights``: by the last component of their names, ``kernel`` for example."""

    name: str
    numbers: tuple[int, ...]
    weights: dict[str, Weight] = field(default_factory=dict)

    @property
    def place(self) -> str:
        """The group of the weights file that has the layer's variables: ``layers/dense``."""
        return next(iter(self.weights.values())).path.rpartition("/vars/")[0]


def split(component: str) -> tuple[str, int]:
    """(name without number, number) of a component of a name: ("dense", 1) for ``dense_1``, ("dense", 0) for ``dense``."""
    match = _NUMBER.fullmatch(component)
    return (match[1], int(match[2])) if match else (component, 0)


def _is_counted(name: str, bases: frozenset[str]) -> bool:
    """Whether Keras may have given any component of a name."""
    *owners, last = name.split("/")
    return any(split(owner)[0] in bases for owner in owners) or split(last)[0] == _NAMELESS


def _families(weights: Iterable[Weight], bases: frozenset[str]) -> dict[str, list[_Layer]]:
    """The layers of some weights, by their name without Keras's numbers. Each family is sorted by the numbers."""
    layers: dict[str, _Layer] = {}
    for weight in weights:
        owner, _, last = weight.name.rpartition("/")
        if owner not in layers:
            layers[owner] = _Layer(owner, tuple(n for base, n in map(split, owner.split("/")) if base in bases))
        layers[owner].weights[last] = weight
    families: dict[str, list[_Layer]] = {}
    for layer in layers.values():
        parts = map(split, layer.name.split("/"))
        key = "/".join(base if base in bases or not n else f"{base}_{n}" for base, n in parts)
        families.setdefault(key, []).append(layer)
        _count_nameless(layer)
    for family in families.values():
        family.sort(key=lambda layer: layer.numbers)
    return families


def _count_nameless(layer: _Layer) -> None:
    """Numbers a layer's nameless variables from 0 on, in their order. Keras counts them per process, as it does with layers."""
    nameless = sorted((last for last in layer.weights if split(last)[0] == _NAMELESS), key=lambda last: split(last)[1])
    weights = [layer.weights.pop(last) for last in nameless]
    layer.weights.update((f"{_NAMELESS}_{n}", weight) for n, weight in enumerate(weights))


def _pair(theirs: list[_Layer], ours: list[_Layer]) -> list[tuple[_Layer, _Layer]] | None:
    """Pairs the layers of one family, the checkpoint's with the model's; None if the family is ambiguous."""
    names = {layer.name: layer for layer in ours}
    by_name = [(layer, names[layer.name]) for layer in theirs if layer.name in names]
    if theirs[0].numbers == ours[0].numbers:
        return by_name
    if not by_name:
        return _in_order(theirs, ours) if len(theirs) == len(ours) else []
    if len(theirs) == len(ours) and not any(_have_same_shapes(*pair) for pair in by_name):
        return _in_order(theirs, ours)
    return None


def _in_order(theirs: list[_Layer], ours: list[_Layer]) -> list[tuple[_Layer, _Layer]]:
    """Pairs as many layers in order: by their places in the weights file if these are the same, else by their numbers."""
    places = {layer.place: layer for layer in ours}
    if len(places) == len(ours) and places.keys() == {layer.place for layer in theirs}:
        return [(layer, places[layer.place]) for layer in theirs]
    return list(zip(theirs, ours, strict=True))


def _have_same_shapes(one: _Layer, other: _Layer) -> bool:
    """Whether two layers have weights of the same names, and these have the same shapes."""
    common = one.weights.keys() & other.weights.keys()
    return bool(common) and all(one.weights[key].spec.shape == other.weights[key].spec.shape for key in common)
