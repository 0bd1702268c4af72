"""The model for which a run is open, and the count of its steps."""

from __future__ import annotations

import weakref
from typing import Any

from deepfreeze.engine.target import Target
from deepfreeze.errors import RunError
from deepfreeze.frameworks.framework import StepCounter
from deepfreeze.ranks.agreement import Agreement
from deepfreeze.state.training_state import TrainingState
from deepfreeze.training.last_training import LastTraining, set_back


class StepCount:
    """The count of the steps of one training, from the moment when its run is open. Checkpoints are named by it, and a count that is lower
    than before would give the name of one to another. ``newest``: the newest step so far."""

    def __init__(self, steps: StepCounter, run: str, who: str) -> None:
        """``run``: the path of the run; ``who``: the name of the function that the user has called."""
        self._steps, self._run, self._who = steps, run, who
        self.newest = steps.now()

    def now(self) -> int:
        """The present step. To be called outside of any graph. ``RunError`` if it is older than an earlier one: a callback has set
        ``iterations`` back."""
        step = self._steps.now()
        if step < self.newest:
            raise set_back(self._run, self.newest, step, self._who)
        self.newest = step
        return step

    def after_execution(self, agreement: Agreement) -> int:
        """As ``now``, but all ranks raise the error after the same step. This rank's count stands still until then."""
        try:
            return self.now()
        except RunError as error:
            agreement.give_up(error)
            return self.newest


class CountedModel:
    """One model from the moment when a run is open for it until ``ended``. Does not keep the model alive."""

    def __init__(self, model: Any, steps: StepCounter | None, state: TrainingState, target: Target, who: str) -> None:
        """``steps``: None for a model that is not compiled; ``state``: the model's training state; ``target``: the run that is open;
        ``who``: the name of the function that the user has called, for messages."""
        self._model = weakref.ref(model)
        self._target, self._who = target, who
        self._steps: StepCounter | None = None
        self._count: StepCount | None = None
        self._training: LastTraining | None = None
        if steps is not None:
            self.complete(steps, state)

    def complete(self, steps: StepCounter, state: TrainingState) -> None:
        """The model's optimizers are there. ``state``: the model's training state."""
        self._steps = steps
        self._count = StepCount(steps, self._target.run, self._who)
        self._training = LastTraining(steps, state)

    def is_of(self, model: Any) -> bool:
        """Whether the run was opened for ``model``."""
        return self._model() is model

    @property
    def waits(self) -> bool:
        """Whether the optimizers were not there, or not built, when the run was opened, and ``complete`` was not called since."""
        return self._steps is None

    @property
    def steps(self) -> StepCounter:
        """The count of the model's steps. Not to be asked while the model ``waits``."""
        assert self._steps is not None
        return self._steps

    @property
    def count(self) -> StepCount:
        """The steps as the training counts them. Not to be asked while the model ``waits``."""
        assert self._count is not None
        return self._count

    def stands_at(self, step: int, optimizer: Any) -> bool:
        """Whether ``optimizer`` is the one whose updates are counted, and the count is ``step``. True where nobody counts yet."""
        return self._steps is None or (self._steps.counts(optimizer) and self._steps.now() == step)

    def ended(self) -> None:
        """The run is closed. Safe to call twice."""
        training, self._training = self._training, None
        if training is not None and self._count is not None:
            training.ended(self._target.run_id, self._count.newest)
