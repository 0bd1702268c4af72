"""The variables that the step of a training writes and the model does not list: all of them are saved, and get their values back, or the
user hears which are not.
Imports TensorFlow."""

from __future__ import annotations

from typing import Any

from deepfreeze.errors import StructureError
from deepfreeze.events.events import Events
from deepfreeze.format.tensors import REPLICATED, TensorSpec
from deepfreeze.frameworks.tensorflow.written_variables import unlisted
from deepfreeze.ranks.world import World, each
from deepfreeze.state import private_api
from deepfreeze.state.training_state import TrainingState
from deepfreeze.thaw import awaited
from deepfreeze.training.installation import Installation

_LISTED = 10  # names in a message


class Unlisted:
    """The variables of one training that its model does not list, from its beginning to the end of its first execution. The training
    thread of every rank calls the methods."""

    def __init__(self, installation: Installation, world: World, events: Events) -> None:
        self._capture, self._world, self._events = installation.capture, world, events
        installation.after_first_execution = self._first_execution_ended
        self._against = ""

    def begin(self, model: Any, against: str) -> None:
        """Collective. To be called before the train function is traced. ``against``: the reason why it does not take the captures, "" if it
        does. Where no graph is traced, ``StructureError`` as below.

        When the step has been traced, the restored values that wait for its variables are assigned. ``StructureError`` ends the training
        then, before its first step, if a restored weight that an optimizer has trained finds no variable."""
        self._against = against or ("run_eagerly=True" if getattr(model, "run_eagerly", False) else "")
        if self._against:
            each(self._world, lambda: _require_weights(model))
        else:
            self._capture.traced = _traced

    def _first_execution_ended(self) -> None:
        """Rank 0 warns of what is not saved, and of what was not restored."""
        self._capture.traced = _nothing
        left = awaited.forget(self._capture.state.model)
        if self._world.rank == 0:
            self._tell(left)

    def _tell(self, left: list[TensorSpec]) -> None:
        """``left``: what waited in vain."""
        if left:
            self._warn(
                f"the checkpoint has values of {_named([spec.name for spec in left])}, which the step wrote when it was saved. Nothing "
                f"got these values: {self._against or 'the step that was traced now writes no such variable'}"
            )
        if self._capture.left_out:
            self._warn(
                f"the step writes {_named(self._capture.left_out)}, which no checkpoint can hold: a training that goes on from a "
                "checkpoint begins with the values that the program gives. If these are numbers, make each a weight of a layer: "
                "self.name = self.add_weight(shape=(), trainable=False)"
            )
        names = [] if self._capture.asked else unlisted(self._capture.state)
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
