"""The protocol by which DeepFreeze speaks to a framework that trains Keras models. TensorFlow is such a framework.

``table`` has a row for each framework: the name of Keras's backend, and the folder whose module ``framework`` implements this protocol. All
that a training asks of a framework is behind this protocol, so a framework is added by a folder and a row. (``DistributedOptimizer``,
``BroadcastState`` and ``AverageMetrics`` are Horovod's with TensorFlow, and are not part of it.)

The training thread calls all methods, between two executions of the train function if the docstring does not say otherwise. No method talks
to the other ranks.

``State`` is the record of a training state, ``state.training_state.TrainingState``: the ``model``, and its ``tensors``, each with its
``variable`` and ``spec``. A framework needs of it ``of_role``, ``whole_on``, ``find`` and ``grown``. It lies above this room, because it
asks a framework for the ``key`` of each variable.

Imports no framework."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from deepfreeze.frameworks.variables import Variables

if TYPE_CHECKING:  # reading a checkpoint needs none of these
    import veloc_bindings
    from deepfreeze.frameworks.state_capture import StateCapture
    from deepfreeze.plan.step.marks import MarkPlace
    from deepfreeze.ranks.control_word import GraphMaximum
    from deepfreeze.ranks.world import World

State = TypeVar("State")


class StepCounter(Protocol):
    """The count of one optimizer's updates. The count is the step after which a checkpoint is named. ``optimizer``: the optimizer;
    ``batches_per_step``: how many batches make one update, 1 without gradient accumulation."""

    optimizer: Any
    batches_per_step: int

    @property
    def counter(self) -> Any:
        """The object that holds the count. Another optimizer has another object. Callers make weak references to it."""

    def counts(self, optimizer: Any) -> bool:
        """True if the updates that are counted are those of ``optimizer``."""

    def now(self) -> int:
        """The number of updates so far, wherever the training keeps it: the caller does not ``settle`` the model. Called before the first
        execution, and up to three times after each one."""

    def batches_now(self) -> int:
        """The number of batches so far, also of those whose gradients are still accumulated."""

    def set(self, step: int) -> None:
        """Sets the number of updates so far. Called when weights are restored from a checkpoint that has no optimizer."""


class TraceWait(Protocol):
    """Waits for the moment, inside of the first execution, in which Keras has made a model's last variables and no step has run."""

    def then(self, who: Any, action: Callable[[], None]) -> None:
        """Has ``action`` called once, in that moment. Actions are called in the order in which they were given; a second one of the same
        callback ``who`` takes the place of its first. The training ends with the exception that an action raises."""

    def leave_steps_out(self) -> None:
        """Called by an action: nothing is left to train, so ``fit`` ends with this execution, and no step is run."""

    def executed(self) -> None:
        """Called after each execution. ``UnsupportedError`` if the moment has not come."""

    def forget(self, who: Any) -> None:
        """Takes the action of ``who`` back, if it is still to come: ``fit`` has ended before its first batch."""


class StepMarks(Protocol):
    """A model's train function with marks that note when they run, from ``Framework.marked_step`` to ``close``. ``area``: has the notes;
    ``places``: of the marks, empty before the first marked step has been traced."""

    area: veloc_bindings.Area
    places: list[MarkPlace]

    def take(self) -> list[veloc_bindings.StepMark]:
        """The notes of all marks since the last call."""

    def close(self) -> None:
        """Ends the marks, and gives the model its own train function back. Safe to call twice."""


class Generators(Protocol):
    """The process's random number generators: Python's, numpy's, the framework's, Keras's. No generator is used during a call."""

    def states(self) -> dict[str, Any]:
        """The state of each generator that exists, by name ("numpy"): a tree that ``format/state_tree`` can encode. Called once for
        each checkpoint of this rank, and once before the first. Changes no state."""

    def set(self, states: dict[str, Any]) -> None:
        """Gives each generator its state, and makes the generators that have a state and don't exist yet. ``states``: read from a
        checkpoint, so KeyError, TypeError or ValueError for a state that is none. Called at most once, when a run is resumed."""

    def seed(self, sequence: np.random.SeedSequence) -> None:
        """Gives each generator that exists a new state, drawn from ``sequence``. Called at most once, in place of ``set``, on a rank
        that the writing job did not have."""


@dataclass(frozen=True)
class Capabilities:
    """The abilities that some frameworks have and others lack.

    - ``own_memory``: it copies pieces into memory of its own, where the engine's memory can't be used or the user does not want it.
    - ``marks``: it puts marks into a model's step (``Framework.marked_step``)."""

    own_memory: bool = False
    marks: bool = False


class Framework(Variables, Protocol[State]):
    """A framework that trains Keras models. A ``Framework`` object keeps no state: the objects that its methods return keep it."""

    capabilities: Capabilities

    def versions(self) -> dict[str, str]:
        """The versions of the framework's own packages, ``{"tensorflow": "2.21.0"}`` for example: a checkpoint has them, and the caller
        adds those of Keras. A new name is a change of the format (``format/structure``, docs/format.md)."""

    # -- A model before its training.

    def refuse(
        self,
        model: Any,
        optimizer: Any = None,
        averages_in_graph: bool = False,
        where: str = "deepfreeze.Checkpoint",
        built: bool = True,
        loop: bool = False,
    ) -> None:
        """``UnsupportedError``, with the reason, if the training of ``model`` can't be captured. ``optimizer``: the optimizer whose updates
        are the steps, None for the one given to ``compile``; ``averages_in_graph``: Horovod's ops are part of the train function;
        ``where``: the name of the function that the user has called, for the message; ``built``: False for a model that its first trace
        will build; ``loop``: the training is a loop written by hand, which nobody can trace."""

    def refuse_devices(self, state: State, where: str) -> None:
        """``UnsupportedError`` if a variable of the state is where the framework can't capture it."""

    def against_graph(self, model: Any) -> str:
        """The reason why the model's train function can't take captures, as text for the log: they are then taken between two executions of
        it. "" if the train function can. A framework without a graph gives that as the reason."""

    def layers_to_build(self, model: Any) -> list[str]:
        """The lines of code that build the layers which the first trace would build, for a message. Empty if all layers are built."""

    def begins_with_trace(self, model: Any) -> bool:
        """True if the training of ``model`` begins inside of its first execution, where its last variables are made (``first_trace``):
        weights, seeds and metrics that a checkpoint may have. Variables of a compiled optimizer are no reason: the training builds the
        optimizer itself."""

    def build_by(self, model: Any, shapes: Any) -> None:
        """Makes all variables of a compiled ``model``, of its metrics too. Called if the model's data is known, and the model
        ``begins_with_trace``; and, whatever that says, if the metrics of a resumed epoch have no variables yet: where none come about,
        they begin anew.
        ``shapes``: the structure of what its train step gets, with objects in the place of arrays that have their ``shape`` (None where
        the size is unknown) and ``dtype``. ``UnsupportedError`` if the train step can't be traced before."""

    def first_trace(self, model: Any) -> TraceWait:
        """The object that waits for the model's first trace: the one that waits already, or a new one. Called while ``on_train_begin``
        runs, if the model ``begins_with_trace``."""

    def trace_anew(self, model: Any) -> None:
        """Has the next execution make the train function anew, because values that the function may have taken in were restored."""

    def steps(self, model: Any, optimizer: Any) -> StepCounter:
        """Counts the updates of an optimizer of ``model``. ``UnsupportedError`` if its way of accumulating gradients is unknown."""

    def line_to_average(self, model: Any, optimizer: Any) -> str | None:
        """The line that makes several ranks average their gradients, if it is certain that nothing averages them. None otherwise."""

    # -- A training.

    def generators(self) -> Generators:
        """The process's random number generators."""

    def against_engine_memory(self) -> str | None:
        """The reason why this process can't capture into the engine's memory, as text for the log. None if it can."""

    def capture(
        self,
        state: State,
        ranges: Sequence[tuple[Any, int, int]],
        rank: int,
        own_memory: bool,
        in_graph: bool,
        maximum: Any,
        optimizer: Any,
        when: str,
    ) -> StateCapture[State]:
        """Makes the captures of ``state``, in its model's train function if ``in_graph``. ``ranges``: the bytes that the placement has
        dealt to this rank, as (tensor of the state, start, stop). The capture leaves those out that are not of replicated tensors, and has
        the tensors of ``state.whole_on(rank)`` as a whole instead, when the first execution has made the last of them. The order of the
        pieces is free. ``own_memory``: True if pieces are copied
        into the framework's memory, False if into the engine's. ``in_graph``: True if the train function takes the captures, False if they
        are taken between two executions of it; ``maximum``: the object that ``maximum`` has returned, which is taken in each step, or
        None. ``optimizer``: the optimizer whose updates are the steps; ``when``: as in ``plan.late_groups``. ``EngineFault`` if the engine
        has no area for captures."""

    def maximum(self, world: World, fields: int) -> GraphMaximum | None:
        """Makes the object that takes the maximum of so many ``fields`` over all ranks in each step. Called where ``world.in_graph``. None
        if the framework's train function can't: the ranks then agree between two executions."""

    def unlisted(self, state: State) -> list[str]:
        """The names of variables that the model leads to and ``state`` does not have. The step may write them, or not."""

    def marked_step(self, model: Any, optimizer: Any, tensors: Sequence[Any]) -> StepMarks:
        """Puts marks into the model's step, for a profile of the step. Called if the framework has the capability ``marks``. ``tensors``:
        of the state, those that are saved. ``EngineFault`` if the framework refuses the engine's ops."""
