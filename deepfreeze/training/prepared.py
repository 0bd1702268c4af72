"""A model before its start: refused, or ready to be restored and captured."""

from __future__ import annotations

from typing import Any

from deepfreeze.engine.backends import table as backends
from deepfreeze.frameworks import table
from deepfreeze.frameworks.framework import StepCounter
from deepfreeze.state import untracked
from deepfreeze.state.applied import assume, is_seen
from deepfreeze.state.keras_objects import build_optimizer
from deepfreeze.state.supported import require_supported
from deepfreeze.state.training_state import TrainingState
from deepfreeze.state.unbuilt import trains_itself, unseen_optimizers
from deepfreeze.thaw.restore import require_built


def prepared(
    model: Any,
    optimizer: Any,
    who: str,
    averages_in_graph: bool,
    before: TrainingState | None = None,
    waits: bool = False,
    loop: bool = False,
) -> tuple[StepCounter | None, TrainingState]:
    """Refuses a model whose training can't be captured, loads the engine, and builds the optimizer, whose variables are restored.
    Returns the count of the model's steps, and its training state. ``optimizer``: the one whose updates are the steps; ``who``: the name
    of the function that the user has called; ``averages_in_graph``: Horovod's ops are part of the train function; ``before``: the
    state that the model had when it was trained before.

    ``waits``: the model is compiled later, or its own ``train_step`` builds its optimizers when ``fit`` begins. It has no count of steps
    then, and its weights alone are its state. ``loop``: the training is a loop written by hand.

    Raises ``UnsupportedError``, ``EngineError``, and ``StructureError`` for a model without weights."""
    if optimizer is None and waits:
        require_supported(who, model)
        require_built(model)
        return None, TrainingState.of(model, "weights")
    framework = table.of(model, who)
    built = not waits or bool(framework.layers_to_build(model))
    framework.refuse(model, optimizer, averages_in_graph, who, built, loop)
    backends.chosen().load()
    if waits:
        return None, TrainingState.of(model, "weights")
    if optimizer is getattr(model, "optimizer", None) and not is_seen(model, optimizer):
        # One that a trace has shown is built from the variables that it is applied to, or is not applied.
        if unseen_optimizers(model):
            assume(model, optimizer)
        build_optimizer(model)
    if loop or trains_itself(model):
        untracked.require_known(
            model, who
        )  # Keras's own step trains the model's list, whatever the optimizer was built for
    state = TrainingState.of(model, before=before)
    if before is None:
        framework.refuse_devices(state, who)  # asks each variable, which takes as long as all the rest
    return framework.steps(model, optimizer), state


def waits_for_fit(model: Any, optimizer: Any) -> bool:
    """Whether the variables of the model's optimizers are made, or known, only when its ``fit`` begins. ``optimizer``: the one whose
    updates are the steps, None if the model is not compiled."""
    return optimizer is None or bool(unseen_optimizers(model))
