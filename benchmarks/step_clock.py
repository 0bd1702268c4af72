"""The time of each step of a Keras training. Imports Keras."""

from __future__ import annotations

import time
from typing import Any

import keras


class StepClock(keras.callbacks.Callback):
    """``seconds`` of each step, and ``used``, the seconds of a core that the process has used since the step before ended. It is to be the
    first callback, so that a step is over before other callbacks begin."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []
        self.used: list[float] = []
        self._used_before = time.process_time()

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Starts the clock."""
        self._begun = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Reads it."""
        self.seconds.append(time.perf_counter() - self._begun)
        used = time.process_time()
        self.used.append(used - self._used_before)
        self._used_before = used
