"""The entries of a structure about a model's optimizers, beside their tensors. Uses Keras objects, imports neither Keras nor TensorFlow."""

from __future__ import annotations

from typing import Any

from deepfreeze.format.dataset_groups import OPTIMIZERS, TRAINED, group, is_untracked
from deepfreeze.state.applied import built_for
from deepfreeze.state.dataset_paths import LocatedState
from deepfreeze.state.training_state import TrainingState


def optimizer_values(state: TrainingState, located: LocatedState) -> dict[str, Any]:
    """The structure's named values (``format.dataset_groups``) of a training's optimizers. Empty for a model whose only optimizer trains
    its trainable variables, as that of most models does."""
    values: dict[str, Any] = {}
    inner: set[str] = set()
    paths: dict[int, str] = {}
    for one in located.tensors:
        tensor = state.find(one.variable)
        paths.setdefault(id(one.variable), one.path)
        if tensor is not None and tensor.optimizer and group(one.path) != tensor.optimizer:
            inner.add(one.path if is_untracked(one.path) else one.path.rpartition("/vars/")[0])
    if inner:
        values[OPTIMIZERS] = sorted(inner)
    optimizer = getattr(state.model, "optimizer", None)
    variables = None if optimizer is None else built_for(state.model, optimizer)
    if variables is not None and state.what == "full" and not _same(variables, state.model.trainable_variables):
        trained = [paths[id(variable)] for variable in variables if id(variable) in paths]
        if len(trained) == len(variables):
            values[TRAINED] = trained
    return values


def _same(one: Any, other: Any) -> bool:
    return [id(variable) for variable in one] == [id(variable) for variable in other]
