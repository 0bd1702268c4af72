"""The weights of both sides of a transfer: a checkpoint's and a model's, and which is which.

Keras puts the name of a Sequential or subclassed model before the names of all its weights (``nt3/conv1d/kernel``), and of a
functional one not. So names are compared as they are and without that of the model, and what pairs more weights is meant.

Uses Keras objects, imports neither Keras nor TensorFlow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from deepfreeze.format.dataset_groups import weights
from deepfreeze.format.structure import Structure
from deepfreeze.format.tensors import TensorSpec
from deepfreeze.reuse.match import Matches, Weight, match, numbered
from deepfreeze.reuse.names import Rename, Renamed
from deepfreeze.state.training_state import STATISTIC, WEIGHT, TrainingState

# Groups of the weights file that hold layers and are none.
_CONTAINERS = ("layers", "_layer_checkpoint_dependencies")


@dataclass(frozen=True, eq=False)
class Known:
    """A weight of either side: what it is, its dataset, and ``short``: its name without the model's, if that is before it."""

    spec: TensorSpec
    path: str
    short: str

    @property
    def names(self) -> tuple[str, str]:
        """What it may be called by the caller."""
        return self.spec.name, self.short


def of_checkpoint(structure: Structure) -> list[Known]:
    """A checkpoint's weights, in the file's order: neither any optimizer's variables, nor metrics, nor seeds."""
    return _known([(one.spec, one.path) for one in weights(structure)])


def of_model(model: Any) -> tuple[list[Known], dict[str, Any]]:
    """A model's weights, in the weights file's order, and their variables by name."""
    from deepfreeze.state.dataset_paths import locate  # imports h5py, which those who only read do without

    state = TrainingState.of(model, "weights")
    tensors = [
        tensor
        for tensor in locate(state).tensors
        if (found := state.find(tensor.variable)) is not None and found.kind in (WEIGHT, STATISTIC)
    ]
    known = _known([(tensor.spec, tensor.path) for tensor in tensors])
    return known, {tensor.spec.name: tensor.variable for tensor in tensors}


def pair(saved: Sequence[Known], own: Sequence[Known], model: Any, rename: Rename) -> Matches:
    """Which weight of the checkpoint, renamed, is which of the model."""
    bases = numbered(model)
    found = match([_full(one, rename) for one in saved], [_weight(one, one.spec.name) for one in own], bases)
    if all(one.short == one.spec.name for one in (*saved, *own)):
        return found
    prefix = _prefix(own)
    without = match([_short(one, rename, prefix) for one in saved], [_weight(one, one.short) for one in own], bases)
    return without if len(without.pairs) > len(found.pairs) else found


def _known(weights: list[tuple[TensorSpec, str]]) -> list[Known]:
    cut = len(_model_name([(spec.name, path) for spec, path in weights]))
    return [Known(spec, path, spec.name[cut:]) for spec, path in weights]


def _model_name(weights: list[tuple[str, str]]) -> str:
    """The model's own name with its ``/``, if all names begin with it; else "". By (name, path).

    A first component that all names share may also be a layer's, if it is the only one. But then all datasets are below one
    group, and as deep in the file as the name is long.
    """
    first = {name.split("/")[0] for name, _ in weights}
    if len(first) != 1 or any("/" not in name for name, _ in weights):
        return ""
    places = [[part for part in path.split("/")[:-2] if part not in _CONTAINERS] for _, path in weights]
    tops = {place[0] if place else "" for place in places}
    longer = all(name.count("/") > len(place) for (name, _), place in zip(weights, places, strict=True))
    return f"{first.pop()}/" if len(tops) > 1 or longer else ""


def _prefix(own: Sequence[Known]) -> str:
    return own[0].spec.name.removesuffix(own[0].short) if own else ""


def _weight(one: Known, name: str) -> Weight:
    return Weight(one.spec, one.path, name, name)


def _full(one: Known, rename: Rename) -> Weight:
    made = _first_touched(rename, *one.names)
    return Weight(one.spec, one.path, made.name, made.rest)


def _short(one: Known, rename: Rename, prefix: str) -> Weight:
    made = _first_touched(rename, one.short, one.spec.name)
    if made.name == made.rest:  # nothing touched it
        return _weight(one, one.short)
    return Weight(one.spec, one.path, made.name.removeprefix(prefix), made.rest)


def _first_touched(rename: Rename, *names: str) -> Renamed:
    """What the first of the names that an entry is about becomes; if there is none, the first as it is."""
    made = [rename(name) for name in names]
    return next((one for one, name in zip(made, names, strict=True) if one.rest != name or one.name != name), made[0])
