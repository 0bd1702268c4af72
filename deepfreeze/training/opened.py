"""What one training holds open. Imports TensorFlow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from deepfreeze.frameworks.tensorflow.capture import TensorFlowCapture
from deepfreeze.frameworks.tensorflow.steps import Steps
from deepfreeze.freeze.saver import Saver
from deepfreeze.ranks.agreement import Agreement
from deepfreeze.training.model_start import Attempt


@dataclass
class Opened:
    """The parts, as far as they are there: the attempt from ``open`` on, the rest during a training."""

    attempt: Attempt | None = None
    model: Callable[[], Any] = lambda: None
    steps: Steps | None = None
    agreement: Agreement | None = None
    capture: TensorFlowCapture | None = None
    saver: Saver | None = None

    def close(self) -> None:
        """In this order: the engine reads what was captured, and the run's lock is the last to go. Safe to call twice."""
        saver, self.saver = self.saver, None
        if saver is not None:
            saver.close()
        capture, self.capture = self.capture, None
        if capture is not None:
            capture.close()
        agreement, self.agreement = self.agreement, None
        if agreement is not None:
            agreement.close()
        attempt, self.attempt = self.attempt, None
        if attempt is not None:
            attempt.close()
