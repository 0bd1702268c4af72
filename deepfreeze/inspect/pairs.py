"""Pairs the tensors of two checkpoints: which tensor of one is which of the other.

Weights are paired by name, as ``transfer`` pairs them: without the name of the whole model, and through the numbers that Keras puts behind
names. There is no model here whose layers would tell which names are Keras's. The places in the model file tell it: Keras calls a layer's
group after the layer's class (``layers/dense_1``). A layer that is an attribute of its model has the attribute's name there, which tells
nothing. So weights that have found no partner are paired by place, as ``restore`` does, if both files have the same weights at the same
places. All other tensors are paired by their plain names, and then by place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deepfreeze.format.dataset_groups import weights
from deepfreeze.format.structure import Placed, Structure
from deepfreeze.matching.match import split
from deepfreeze.matching.weights import NamedWeight, of_checkpoint, pair


@dataclass(frozen=True)
class Pair:
    """A tensor of the first checkpoint and the same of the second. ``label``: the tensor for people. It is the name without the name of the
    whole model, and both names where they differ even then: "dense/kernel = dense_2/kernel"."""

    first: Placed
    second: Placed
    label: str


@dataclass(frozen=True)
class Pairs:
    """``both``, ``only_first``: in the first checkpoint's order; ``only_second``: in the second's. Names are whole."""

    both: tuple[Pair, ...]
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]


def pairs(first: Structure, second: Structure, everything: bool = False) -> Pairs:
    """Pairs the weights of two checkpoints, and with ``everything`` also optimizers' variables, metrics and seeds."""
    named = of_checkpoint(first), of_checkpoint(second)
    shorts = [{one.spec.name: one.short for one in side} for side in named]
    chosen = [list(structure.tensors) if everything else weights(structure) for structure in (first, second)]
    partners = _weights(*named, _numbered(first) | _numbered(second))
    rest = [[one for one in side if one.spec.name not in known] for side, known in zip(chosen, shorts, strict=True)]
    names = {placed.spec.name for placed in rest[1]}
    partners |= {placed.spec.name: placed.spec.name for placed in rest[0] if placed.spec.name in names}
    for one, other in ((weights(first), weights(second)), (rest[0], rest[1])):
        partners |= _by_place(one, other, partners)
    taken = set(partners.values())

    def label(name: str, other: str) -> str:
        short, theirs = shorts[0].get(name, name), shorts[1].get(other, other)
        return short if short == theirs else f"{short} = {theirs}"

    return Pairs(
        tuple(
            Pair(placed, second.by_name[partners[name]], label(name, partners[name]))
            for placed in chosen[0]
            if (name := placed.spec.name) in partners
        ),
        tuple(placed.spec.name for placed in chosen[0] if placed.spec.name not in partners),
        tuple(placed.spec.name for placed in chosen[1] if placed.spec.name not in taken),
    )


def _weights(first: Sequence[NamedWeight], second: Sequence[NamedWeight], bases: frozenset[str]) -> dict[str, str]:
    """The names in the second checkpoint of the first one's weights, by their names in the first."""
    matches = pair(first, second, bases)
    partners = {one.spec.name: other.spec.name for one, other in matches.pairs}
    # Where two readings are possible ``transfer`` asks. Nothing is changed here, and the plain names are as good a guess as any.
    by_short = {one.short: one.spec.name for one in second if one.spec.name not in set(partners.values())}
    shorts = {one.spec.name: one.short for one in first}
    for weight in (weight for _, _, unclear in matches.unclear for weight in unclear):
        if shorts[weight.spec.name] in by_short:
            partners[weight.spec.name] = by_short[shorts[weight.spec.name]]
    return partners


def _by_place(first: Sequence[Placed], second: Sequence[Placed], partners: dict[str, str]) -> dict[str, str]:
    """As ``_weights``, for the tensors that have no partner yet and lie at the same place; {} unless all places are the same."""
    places = [{(one.path, one.spec.dtype, one.spec.shape): one.spec.name for one in side} for side in (first, second)]
    if places[0].keys() != places[1].keys():
        return {}
    taken = set(partners.values())
    both = ((name, places[1][place]) for place, name in places[0].items())
    return {name: other for name, other in both if name not in partners and other not in taken}


def _numbered(structure: Structure) -> frozenset[str]:
    """The names, without numbers, that Keras itself has given to layers: those that are also the name of the layer's group in the file."""
    bases = set()
    for placed in weights(structure):
        groups = {split(part)[0] for part in placed.path.split("/")[:-2]}
        bases |= groups & {split(part)[0] for part in placed.spec.name.split("/")[:-1]}
    return frozenset(bases)
