"""A run as one training holds it. Imports TensorFlow."""

from __future__ import annotations

import contextlib
import weakref
from typing import Any

from deepfreeze.frameworks.tensorflow.steps import Steps
from deepfreeze.training.model_start import Attempt


class OpenRun:
    """From the start of an attempt until ``close``, which gives everything back in the reverse order in which it was opened: the
    engine reads what was captured, and the run's lock is the last to go."""

    def __init__(self, attempt: Attempt, model: Any, steps: Steps) -> None:
        self.attempt, self.steps = attempt, steps
        self._model = weakref.ref(model)
        self.closing = contextlib.ExitStack()
        self.closing.callback(attempt.close)

    def is_of(self, model: Any) -> bool:
        """Whether it was opened for this model."""
        return self._model() is model

    def is_as_opened(self, optimizer: Any) -> bool:
        """Whether the attempt still fits: the same optimizer counts the steps, and stands where it stood."""
        return self.steps.counts(optimizer) and self.steps.now() == self.attempt.step

    def close(self) -> None:
        """Closes all parts, also where the closing of one raises: the last error is raised then. Safe to call twice."""
        self.closing.close()
