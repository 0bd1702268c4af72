"""The weights of a model: their names, and which of these Keras itself has given.

Uses Keras objects, imports neither Keras nor TensorFlow.
"""

from __future__ import annotations

import re
from typing import Any

from deepfreeze.matching.match import split
from deepfreeze.matching.weights import NamedWeight, named
from deepfreeze.state.keras_objects import saveables
from deepfreeze.state.training_state import STATISTIC, WEIGHT, TrainingState


def of_model(model: Any) -> tuple[list[NamedWeight], dict[str, Any]]:
    """A model's weights, in the order of the weights file, and their variables by name."""
    from deepfreeze.state.dataset_paths import locate  # imports h5py, which programs that only read don't need

    state = TrainingState.of(model, "weights")
    tensors = [
        tensor
        for tensor in locate(state).tensors
        if (found := state.find(tensor.variable)) is not None and found.kind in (WEIGHT, STATISTIC)
    ]
    variables = {tensor.spec.name: tensor.variable for tensor in tensors}
    return named([(tensor.spec, tensor.path) for tensor in tensors]), variables


def numbered(model: Any) -> frozenset[str]:
    """The names, without numbers, that Keras itself has given to layers of ``model``: those of their classes, ``dense`` for example."""
    bases = set()
    for layer in saveables(model).values():
        base = split(getattr(layer, "name", None) or "")[0]
        # Bidirectional puts forward_ and backward_ before the name of the layer that it was given.
        plain = re.sub(r"^(forward|backward)_", "", base)
        if plain.replace("_", "") == type(layer).__name__.replace("_", "").lower():
            bases.add(base)
    return frozenset(bases)
