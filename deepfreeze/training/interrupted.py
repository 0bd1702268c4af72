"""The place at which an exception, such as Ctrl-C, has ended a ``fit``. The next ``fit`` of the same objects goes on there, if its data
know their place (``data=``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deepfreeze.format.position import Position
from deepfreeze.frameworks.framework import StepCounter
from deepfreeze.notices import Notify
from deepfreeze.plan.fit_position import FitPosition
from deepfreeze.state.callbacks.states import CallbackStates
from deepfreeze.training.fits import Fits
from deepfreeze.training.input_position import InputPosition
from deepfreeze.training.start import Start


class _Executions:
    """Counts what one ``fit`` has executed, and so knows of an execution that was over when the exception came, and of which Keras has told
    no callback: an exception of another thread, or a signal, waits for the end of the train function."""

    def __init__(self, steps: StepCounter, position: FitPosition, batches: int) -> None:
        """``position``: of the ``fit``, which begins; ``batches``: in one execution of the train function."""
        self.position, self._batches, self.steps = position, batches, steps
        self._told = self._begun = position.trained
        self._step = self.steps.now()
        self._before = self.steps.batches_now() - position.trained

    def executed(self, step: int) -> None:
        """Keras has told of an execution, which ended at ``step``."""
        self._told, self._step = self.position.trained, step

    def catch_up(self) -> bool:
        """The ``fit`` has ended. Moves the position behind an execution of which Keras has not told. Returns False if the program has set
        the count of steps since: the position is not that of the model's values then."""
        if self.steps.batches_per_step > 1:
            missed = self.steps.batches_now() - self._before - self.position.trained
        elif self.position.trained == self._told:
            # An update that a loss scale has skipped is not noticed. It has changed no weight, so its batch may come again.
            missed = self.steps.now() - self._step
        else:
            missed = 0  # the exception came while the callback heard of the execution
        if missed > 0:
            self.position.missed(self._batches)
        return 0 <= missed <= self._batches

    @property
    def any(self) -> bool:
        """Whether the ``fit`` has trained a batch, or went on from an earlier one."""
        return self.position.trained > self._begun or self.position.going_on is not None


@dataclass(frozen=True)
class _Place:
    """Where a ``fit`` was left. ``step``: of the model; ``position``: in the ``fit``; ``states``: of the data, of the epoch under way and
    of Keras's callbacks, as a checkpoint of this step has them."""

    step: int
    position: Position
    states: Mapping[str, Any]


class InterruptedFit:
    """The ``fit`` of one ``Checkpoint`` that an exception has ended last, if there is one. The training thread calls all methods.

    The order of the calls: ``begin`` and ``executed`` in a ``fit``; ``closes`` when its run is closed, ``opened`` when it is open again."""

    def __init__(self, data: InputPosition, callbacks: CallbackStates) -> None:
        self._data, self._callbacks = data, callbacks
        self._executions: _Executions | None = None  # of the ``fit`` under way
        self._place: _Place | None = None

    def begin(self, steps: StepCounter, position: FitPosition | None, batches: int) -> None:
        """A ``fit`` begins at ``position``, with so many ``batches`` in one execution; None: a loop."""
        self._executions = None if position is None else _Executions(steps, position, batches)

    def executed(self, step: int) -> None:
        """Keras has told of an execution, which ended at ``step``."""
        if self._executions is not None:
            self._executions.executed(step)

    def closes(self, finished: bool) -> None:
        """The run is about to be closed. ``finished``: the ``fit`` has come to its end."""
        executions, self._executions = self._executions, None
        if executions is None or finished or self._data.data is None:
            return
        if executions.catch_up() and executions.any:
            step = executions.steps.now()
            states = {**self._data.states(), **self._callbacks.states(step)}
            self._place = _Place(step, executions.position.at(0, 1), states)

    def opened(self, attempt: Start, fits: Fits, again: bool, notify: Notify) -> None:
        """Collective. The run is open. ``again``: the model has kept its values, and may go on. Its next ``fit`` then goes on where the
        last one was interrupted, if that was at the same place on all ranks, and the model is still at that step."""
        place, self._place = self._place, None
        if not again or self._data.data is None:
            return
        mine = None if place is None or place.step != attempt.step else (place.step, place.position)
        same = all(theirs == mine for theirs in attempt.world.gather(mine))
        if place is None or mine is None or not same:
            return
        self._data.load_states(place.states)
        self._callbacks.load_states(place.states)
        fits.restored(place.step, place.position)
        if self._data.lacks_epoch(place.position):
            notify(
                "warning",
                f"the fit was interrupted at the end of epoch {place.position.epoch + 1}: the history, and the callbacks in extra=, have "
                "not seen the epoch's end, and lack it",
            )
