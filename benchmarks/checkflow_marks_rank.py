"""Steps of a training with all marks and without, in turns, for ``benchmarks.checkflow``. One rank. Imports TensorFlow."""

from __future__ import annotations

import tempfile
import time
from typing import Any

import keras

import veloc_bindings
from benchmarks import jobs, workloads
from benchmarks.checkflow_training import fit
from deepfreeze.frameworks.tensorflow.step_marks import MarkedStep
from deepfreeze.state.training_state import TrainingState

WARM = 6  # steps before the first one that counts
CALLS, PAGE = 20_000, 4096


class Turns(keras.callbacks.Callback):
    """Trains each step with the next one of the ``functions``. ``seconds``: of the steps with each of them."""

    def __init__(self, functions: list[Any]) -> None:
        super().__init__()
        self.seconds: list[list[float]] = [[] for _ in functions]
        self._functions = functions

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Begins a step."""
        # With, without; without, with: a machine that becomes slower does so for both.
        self._which = (batch + batch // 2) % 2
        self.model.train_function = self._functions[self._which]
        self._begun = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Ends it."""
        if batch >= WARM:
            self.seconds[self._which].append(time.perf_counter() - self._begun)


def measure(params: dict[str, Any]) -> dict[str, Any]:
    """Seconds of the steps of both kinds, the number of marks, and seconds that one mark takes. See ``jobs.serve``."""
    model, x, y = workloads.model(params["workload"], distributed=False)

    def train(steps: int, *callbacks: Any) -> None:
        fit(model, x, y, steps, *callbacks)

    train(2)
    plain = model.train_function
    marked = MarkedStep(model, model.optimizer, TrainingState.of(model, "full").tensors)
    train(2)
    turns = Turns([plain, model.train_function])
    train(WARM + 2 * params["pairs"], turns)
    marks = len(marked.places)
    marked.close()
    return {"plain": turns.seconds[0], "marked": turns.seconds[1], "marks": marks, "mark": _mark()}


def _mark() -> float:
    """Seconds of a mark, beyond those of the call. An engine is there, whose bytes and times are noted."""
    area = veloc_bindings.Area()
    area.marks(1)
    seconds = []
    nobody = {"run_id": bytes(16), "attempt": bytes(16), "structure": bytes(32)}
    with (
        tempfile.TemporaryDirectory() as run,
        veloc_bindings.EmbeddedEngine(run_dir=run, local_dir=None, file_size=PAGE, **nobody) as engine,
    ):
        engine.attach(area, 1)
        for number in (0, 1) * 5:  # there is no mark 1: the call alone
            begun = time.perf_counter()
            for _ in range(CALLS):
                area.mark(number)
            seconds.append((time.perf_counter() - begun) / CALLS)
        area.close()
    return min(seconds[0::2]) - min(seconds[1::2])


if __name__ == "__main__":
    jobs.serve(measure)
