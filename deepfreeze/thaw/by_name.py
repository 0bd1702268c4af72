"""Which variable of a model is which tensor of a checkpoint, where names say it: without asking Keras for its layout, which takes up
to a second."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deepfreeze.format.dataset_groups import is_metric
from deepfreeze.format.structure import KERAS_H5, Placed, Structure
from deepfreeze.format.tensors import TensorSpec
from deepfreeze.plan.placement import in_file_order
from deepfreeze.state.attachments import PATH as ATTACHMENTS
from deepfreeze.state.training_state import METRIC, SEED, TrainingState


def variables(structure: Structure, wanted: Sequence[Placed], state: TrainingState) -> dict[str, Any] | None:
    """The model's variables by the paths of the ``wanted`` tensors; None unless they are the same tensors beyond doubt: of the same
    names, each once, the same shapes, dtypes and roles, and in the same order.

    The order matters because Keras makes names by counting the layers of a process. Where two layers were made in the other order,
    equal names stand for layers that have changed places; then the order of the names differs, and Keras has to be asked.

    Metrics have no names of their own (``total``, ``count``), and a new model does not have all of them yet: if the checkpoint has
    any, those that the model has must be its first ones."""
    if structure.layout != KERAS_H5:
        return None
    saved = [placed for placed in wanted if placed.path != ATTACHMENTS and not is_metric(placed.path)]
    own = [tensor for tensor in state.tensors if tensor.kind not in (METRIC, SEED)]
    own = [own[i] for i in in_file_order([tensor.spec for tensor in own])]
    own += [tensor for tensor in state.of_kind(SEED) if state.what == "full"]
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
    """Without the number that stands behind a name that others have too."""
    return spec.name.partition("#")[0], spec.dtype, spec.shape
