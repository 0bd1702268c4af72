"""The run that a training has open: the run's lock, and all that is given back with it."""

from __future__ import annotations

import contextlib
import weakref
from typing import Any

from deepfreeze.frameworks.framework import StepCounter
from deepfreeze.state.training_state import TrainingState
from deepfreeze.training.first_step import FirstStep
from deepfreeze.training.last_training import LastTraining
from deepfreeze.training.model_start import ModelStart
from deepfreeze.training.step_count import StepCount


class OpenRun:
    """A run that is open for the training of one model, from the start of an attempt until ``close``.

    ``file_size``: bytes of a checkpoint's model file, 0 until it is known; ``begun``: whether a ``fit`` or a loop has begun;
    ``finished``: whether the training has come to its end;
    ``error``: the error that ended it, as text; ``closing``: to which each part that is opened later adds the function that closes it;
    ``first_step``: is told of the first new step, None on other ranks than rank 0.

    ``close`` closes the parts in the reverse order in which they were opened. So the engine stops before the memory that it reads is given
    back, and the run's lock is given back last."""

    def __init__(
        self, attempt: ModelStart, model: Any, steps: StepCounter | None, state: TrainingState, who: str
    ) -> None:
        """``steps``: None for a model that is not compiled; ``state``: the model's training state; ``who``: the name of the function that
        the user has called, for messages."""
        self.attempt, self._steps, self._who = attempt, steps, who
        self._model = weakref.ref(model)
        self.closing = contextlib.ExitStack()
        self.closing.callback(attempt.close)
        self.file_size = 0
        self.begun = self.finished = False
        self.error: str | None = None
        self.first_step: FirstStep | None = None
        self._count: StepCount | None = None
        self._training: LastTraining | None = None
        if steps is not None:
            self._begin_to_count(steps, state)

    def _begin_to_count(self, steps: StepCounter, state: TrainingState) -> None:
        self._count = StepCount(steps, self.attempt.target.run, self._who)
        self._training = LastTraining(steps, state)

    def is_of(self, model: Any) -> bool:
        """Whether the run was opened for ``model``."""
        return self._model() is model

    @property
    def steps(self) -> StepCounter:
        """The count of the model's steps. Not to be asked while the run ``waits``."""
        assert self._steps is not None
        return self._steps

    @property
    def counted(self) -> StepCount:
        """The steps as the training counts them. Not to be asked while the run ``waits``."""
        assert self._count is not None
        return self._count

    @property
    def waits(self) -> bool:
        """Whether the optimizers were not there, or not built, when the run was opened, and ``complete`` was not called since."""
        return self._steps is None

    def complete(self, model: Any, steps: StepCounter, state: TrainingState) -> None:
        """Collective. The optimizers are there now. ``state``: the model's training state. Raises the errors of ``ModelStart.complete``."""
        self.attempt.complete(model, steps)
        self._steps = steps
        self._begin_to_count(steps, state)

    def is_as_opened(self, optimizer: Any) -> bool:
        """Whether ``optimizer`` is the one whose updates were counted when the run was opened, and has made no update since."""
        if self._steps is None:
            return True  # nobody has counted
        return self._steps.counts(optimizer) and self._steps.now() == self.attempt.step

    def close(self) -> None:
        """Closes all parts, also if closing one of them raises; raises the last error at the end. Safe to call twice."""
        training, self._training = self._training, None
        if training is not None and self._count is not None:
            training.ended(self.attempt.target.run_id, self._count.newest)
        self.closing.close()
