"""What one training holds until it is closed. Imports TensorFlow."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from deepfreeze.frameworks.tensorflow.capture import TensorFlowCapture
from deepfreeze.frameworks.tensorflow.steps import Steps
from deepfreeze.freeze.saver import Saver
from deepfreeze.ranks.agreement import Agreement
from deepfreeze.training.model_start import Attempt

T = TypeVar("T")


@dataclass
class Holdings:
    """The attempt from ``open`` on; agreement, capture and saver during a training. ``close`` gives them back in the reverse order
    in which they were held: the engine reads what was captured, and the run's lock is the last to go."""

    attempt: Attempt | None = None
    model: Callable[[], Any] = lambda: None
    steps: Steps | None = None
    agreement: Agreement | None = None
    capture: TensorFlowCapture | None = None
    saver: Saver | None = None
    _closing: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def hold(self, part: T) -> T:
        """Closes ``part`` when this is closed; returns it."""
        self._closing.callback(part.close)  # type: ignore[attr-defined]
        return part

    def close(self) -> None:
        """Closes all parts, also where the closing of one raises: the last error is raised then. Safe to call twice."""
        self.attempt = self.agreement = self.capture = self.saver = None
        self._closing.close()
