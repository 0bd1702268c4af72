"""The time of each step of a Keras training. Imports Keras."""

from __future__ import annotations

import time
from typing import Any

import keras


class StepClock(keras.callbacks.Callback):
    """``seconds`` of each step. It is to be the first callback, so that a step is over before other callbacks begin."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Starts the clock."""
        self._begun = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Reads it."""
        self.seconds.append(time.perf_counter() - self._begun)
