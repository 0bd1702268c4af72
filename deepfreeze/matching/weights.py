"""The weights of a checkpoint or of a model with the names by which they are compared, and the pairs that those of two sides form.

Keras puts the name of a Sequential or subclassed model before the names of all its weights (``nt3/conv1d/kernel``); it does not for a
functional model. So the names are compared twice, with the model's name and without it. The comparison with more pairs counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from deepfreeze.format.dataset_groups import is_untracked, weights
from deepfreeze.format.structure import Structure
from deepfreeze.format.tensors import TensorSpec
from deepfreeze.matching.match import Matches, Renamed, Weight, match

# Turns the name of a checkpoint's weight into the name by which it is compared. Called with each of a weight's names.
Rename = Callable[[str], Renamed]

# Groups of the weights file that hold layers and are not layers themselves. The second is a private name of Keras 2
# (``state/private_names``).
_CONTAINERS = ("layers", "_layer_checkpoint_dependencies")


@dataclass(frozen=True, eq=False)
class NamedWeight:
    """A weight of the checkpoint or of the model. ``spec``: its name, dtype and shape; ``path``: its dataset; ``short``: its name without
    the model's name in front."""

    spec: TensorSpec
    path: str
    short: str

    @property
    def names(self) -> tuple[str, str]:
        """The names by which the user may call the weight."""
        return self.spec.name, self.short


def of_checkpoint(structure: Structure) -> list[NamedWeight]:
    """A checkpoint's weights, in the order of the model file; without optimizers' variables, metrics and seeds."""
    return named([(one.spec, one.path) for one in weights(structure)])


def as_it_is(name: str) -> Renamed:
    """The ``Rename`` that changes no name."""
    return Renamed(name, name)


def pair(
    saved: Sequence[NamedWeight], own: Sequence[NamedWeight], bases: frozenset[str], rename: Rename = as_it_is
) -> Matches:
    """Pairs a checkpoint's weights, renamed, with the other side's. ``bases``: as for ``match``."""
    by_full_name = match([_full(one, rename) for one in saved], [_weight(one, one.spec.name) for one in own], bases)
    if all(one.short == one.spec.name for one in (*saved, *own)):
        return by_full_name
    prefix = _prefix(own)
    by_short_name = match(
        [_short(one, rename, prefix) for one in saved], [_weight(one, one.short) for one in own], bases
    )
    return by_short_name if len(by_short_name.pairs) > len(by_full_name.pairs) else by_full_name


def named(weights: list[tuple[TensorSpec, str]]) -> list[NamedWeight]:
    """All weights of one side, given as (spec, path), with their names."""
    # Variables that Keras leaves out of its files may be of no layer, and have no model's name then.
    prefix = _model_name([(spec.name, path) for spec, path in weights if not is_untracked(path)])
    return [NamedWeight(spec, path, spec.name.removeprefix(prefix)) for spec, path in weights]


def _model_name(weights: list[tuple[str, str]]) -> str:
    """The model's own name and a ``/``, if all names begin with it; else "". ``weights``: (name, path) of each.

    A first component that all names share may also be the name of the model's only layer. Then all datasets are below one group of
    the file, and their paths have as many layers as the names.
    """
    first = {name.split("/")[0] for name, _ in weights}
    if len(first) != 1 or any("/" not in name for name, _ in weights):
        return ""
    places = [[part for part in path.split("/")[:-2] if part not in _CONTAINERS] for _, path in weights]
    tops = {place[0] if place else "" for place in places}
    longer = all(name.count("/") > len(place) for (name, _), place in zip(weights, places, strict=True))
    return f"{first.pop()}/" if len(tops) > 1 or longer else ""


def _prefix(own: Sequence[NamedWeight]) -> str:
    """The model's own name and a ``/``, as it stands before the names of its weights; else ""."""
    return own[0].spec.name.removesuffix(own[0].short) if own else ""


def _weight(one: NamedWeight, name: str) -> Weight:
    return Weight(one.spec, one.path, name, name)


def _full(one: NamedWeight, rename: Rename) -> Weight:
    renamed = _first_changed(rename, *one.names)
    return Weight(one.spec, one.path, renamed.name, renamed.rest)


def _short(one: NamedWeight, rename: Rename, prefix: str) -> Weight:
    renamed = _first_changed(rename, one.short, one.spec.name)
    if renamed.name == renamed.rest:  # rename has changed neither name
        return _weight(one, one.short)
    return Weight(one.spec, one.path, renamed.name.removeprefix(prefix), renamed.rest)


def _first_changed(rename: Rename, *names: str) -> Renamed:
    """The result for the first of the names that ``rename`` changes; if it changes none, the first name as it is."""
    results = [rename(name) for name in names]
    changed = (one for one, name in zip(results, names, strict=True) if one.rest != name or one.name != name)
    return next(changed, results[0])
