"""Pairs the tensors of a checkpoint with the variables of a model by their names, where names leave no doubt.

Then a restore need not ask Keras for the dataset of each variable (``state/dataset_paths``), which takes up to a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deepfreeze.format.dataset_groups import is_metric
from deepfreeze.format.structure import KERAS_H5, Placed, Structure
from deepfreeze.format.tensors import TensorSpec
from deepfreeze.plan.placement import in_file_order
from deepfreeze.state.attachments import PATH_1
from deepfreeze.state.training_state import GENERATOR, METRIC, SEED, TrainingState


def variables(structure: Structure, wanted: Sequence[Placed], state: TrainingState) -> dict[str, Any] | None:
    """The variable of each of the ``wanted`` tensors, by the tensor's path (its dataset in the model file). None where the caller has
    to ask Keras: unless the model and the checkpoint have tensors of the same names, each name once, with the same shapes, dtypes
    and roles, in the same order.

    The order matters because Keras numbers the layers of a process as they are made (``dense``, ``dense_1``). A program that makes
    two layers in the other order gives each the other's name; the order of the names in the model then differs.

    Metrics are compared by order, dtype and shape: all have the same names (``total``, ``count``), and a new model has only some of
    its metrics yet. Those that it has must be the first ones of the checkpoint."""
    if structure.layout != KERAS_H5:
        return None
    saved = [placed for placed in wanted if placed.path != PATH_1 and not is_metric(placed.path)]
    own = [tensor for tensor in state.tensors if tensor.kind not in (METRIC, SEED, GENERATOR)]
    own = [own[i] for i in in_file_order([tensor.spec for tensor in own])]
    own += [tensor for tensor in state.of_kind(SEED, GENERATOR) if state.what == "full"]
    if any(not placed.spec.nbytes or "#" in placed.spec.name for placed in saved):
        return None  # without a place, in two datasets, or one of two variables of one name
    if [placed.spec for placed in saved] != [tensor.spec for tensor in own]:
        return None
    metrics, own_metrics = [placed for placed in wanted if is_metric(placed.path)], state.of_kind(METRIC)
    first = [_kind(placed.spec) for placed in metrics[: len(own_metrics)]]
    if metrics and first != [_kind(tensor.spec) for tensor in own_metrics]:
        return None
    pairs = [*zip(saved, own, strict=True), *zip(metrics, own_metrics)]
    return {placed.path: tensor.variable for placed, tensor in pairs}


def _kind(spec: TensorSpec) -> tuple[str, str, tuple[int, ...]]:
    """Name, dtype and shape; of the name ``count#2``, the second ``count`` of a state, only ``count``."""
    return spec.name.partition("#")[0], spec.dtype, spec.shape
