"""The count of a training's steps, which never goes back."""

from __future__ import annotations

from deepfreeze.errors import RunError
from deepfreeze.frameworks.framework import StepCounter
from deepfreeze.ranks.agreement import Agreement
from deepfreeze.training.last_training import set_back


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
