"""Builds the optimizer of a model as that of a checkpoint was built. Uses Keras objects, imports neither Keras nor TensorFlow."""

from __future__ import annotations

from typing import Any

from deepfreeze.format.dataset_groups import trained
from deepfreeze.format.structure import Structure
from deepfreeze.state import applied
from deepfreeze.state.keras_objects import build_optimizer, is_built
from deepfreeze.state.training_state import TrainingState


def build_as_saved(structure: Structure, model: Any) -> None:
    """Makes the variables of the model's optimizer, if it is not built yet: for the variables that the checkpoint's optimizer trained, if
    the model has them all; else for the model's trainable variables."""
    paths, optimizer = trained(structure), model.optimizer
    if paths is not None and not is_built(optimizer):
        from deepfreeze.state.dataset_paths import locate  # imports h5py, which most do without

        own = {tensor.path: tensor.variable for tensor in locate(TrainingState.of(model, "weights")).tensors}
        variables = [own[path] for path in paths if path in own]
        if len(variables) == len(paths):
            optimizer.build(variables)
            applied.note_built(model, optimizer, variables)
    build_optimizer(model)


def line_for_all(structure: Structure, model: Any) -> str:
    """What to do where the model's first trace has built its optimizer for some of the model's trainable variables, and the checkpoint's
    was built for all; "" elsewhere. Versions that did not ask what ``train_step`` trains have built it so."""
    optimizer = getattr(model, "optimizer", None)
    known = None if optimizer is None else applied.built_for(model, optimizer)
    if known is None or trained(structure) is not None or len(known) >= len(model.trainable_variables):
        return ""
    return (
        f"train_step trains {len(known)} of the {len(model.trainable_variables)} variables in model.trainable_variables, and the "
        "checkpoint's optimizer was built for all of them: call model.optimizer.build(model.trainable_variables) before fit to resume it"
    )
