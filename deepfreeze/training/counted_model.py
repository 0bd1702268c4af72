"""The model for which a run is open, and the count of its steps."""

from __future__ import annotations

import weakref
from typing import Any

from deepfreeze.engine.target import Target
from deepfreeze.frameworks.framework import StepCounter
from deepfreeze.state.training_state import TrainingState
from deepfreeze.training.last_training import LastTraining
from deepfreeze.training.step_count import StepCount


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
