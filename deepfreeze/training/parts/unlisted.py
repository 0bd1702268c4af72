"""The variables that the step of a training writes and the model does not list: all of them are saved, and get their values back, or the
user hears which are not."""

from __future__ import annotations

from typing import Any

from deepfreeze.errors import StructureError
from deepfreeze.format.tensors import REPLICATED, TensorSpec
from deepfreeze.frameworks import table
from deepfreeze.frameworks.state_capture import StateCapture
from deepfreeze.ranks.world import each
from deepfreeze.state import private_api
from deepfreeze.state.training_state import TrainingState
from deepfreeze.thaw import awaited
from deepfreeze.training.begun import Begun
from deepfreeze.training.installation import Installation
from deepfreeze.training.part import Part

_LISTED = 10  # names in a message


class Unlisted(Part):
    """The variables of one training that its model does not list, from its beginning to the end of its first execution."""

    def __init__(self, begun: Begun) -> None:
        self._world, self._events, self._model = begun.world, begun.events, begun.fitting.model
        eagerly = "run_eagerly=True" if getattr(self._model, "run_eagerly", False) else ""
        self._against = begun.fitting.against or eagerly

    def begins(self, installation: Installation) -> bool:
        """When the step has been traced, the restored values that wait for its variables are assigned. ``StructureError`` ends the training
        then, before its first step, if a restored weight that an optimizer has trained finds no variable; at once where no graph is
        traced."""
        capture = installation.capture
        installation.after_first_execution = lambda: self._first_execution_ended(capture)
        if self._against:
            each(self._world, lambda: _require_weights(self._model))
        else:
            capture.traced = _traced
        return True

    def _first_execution_ended(self, capture: StateCapture[TrainingState]) -> None:
        """Rank 0 warns of what is not saved, and of what was not restored."""
        capture.traced = _nothing
        left = awaited.forget(capture.state.model)
        if self._world.rank == 0:
            self._tell(capture, left)

    def _tell(self, capture: StateCapture[TrainingState], left: list[TensorSpec]) -> None:
        """``left``: what waited in vain."""
        if left:
            self._warn(
                f"the checkpoint has values of {_named([spec.name for spec in left])}, which the step wrote when it was saved. Nothing "
                f"got these values: {self._against or 'the step that was traced now writes no such variable'}"
            )
        if capture.left_out:
            self._warn(
                f"the step writes {_named(capture.left_out)}, which no checkpoint can hold: a training that goes on from a "
                "checkpoint begins with the values that the program gives. If these are numbers, make each a weight of a layer: "
                "self.name = self.add_weight(shape=(), trainable=False)"
            )
        names = [] if capture.asked else table.of(self._model).unlisted(capture.state)
        if names:
            why = self._against or "this TensorFlow does not tell what a step writes"
            self._warn(
                f"{_named(names)}: in no checkpoint, because the model does not list them, and nothing tells whether the step writes them "
                f"({why}). If it does, make each a weight: self.name = self.add_weight(shape=(), trainable=False)"
            )

    def _warn(self, message: str) -> None:
        self._events.warn(message, once=message)


def _traced(state: TrainingState) -> None:
    awaited.fill(state)
    try:
        _require_weights(state.model)
    except StructureError as error:
        private_api.passed_through(error)
        raise


def _nothing(state: TrainingState) -> None:
    """Nothing waits any more."""


def _require_weights(model: Any) -> None:
    """``StructureError`` if a weight that an optimizer has trained still waits for its variable."""
    lost: list[TensorSpec] = [spec for spec in awaited.left(model) if spec.role == REPLICATED]
    if lost:
        raise StructureError(
            where="the checkpoint that was restored",
            expected="variables for all weights that an optimizer has trained",
            found=f"none for {_named([spec.name for spec in lost])}",
            todo="build the model as the job that wrote the checkpoint did, or give this model another run directory",
        )


def _named(names: list[str]) -> str:
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more
