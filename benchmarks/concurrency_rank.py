"""The trainings of benchmarks.concurrency, in one process."""

from __future__ import annotations

import gc
import shutil
import time
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

import deepfreeze
from benchmarks import jobs, workloads
from benchmarks.capture_memory import sampled
from deepfreeze.freeze.settings import Engine

TOUCHED = 4  # periods that are not measured: the first captures find their memory
BLOCKS = Engine().writers * Engine().chunk_bytes
# Of the shard, for what a capture has besides: the table of a slot, and the rest of pages.
MORE = 1.001


class Clock(keras.callbacks.Callback):
    """``times``: when each step was over, in seconds."""

    def __init__(self) -> None:
        super().__init__()
        self.times: list[float] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Notes the time."""
        self.times.append(time.perf_counter())


class Trainings:
    """Trains one model again and again, with a new run and a new callback each time."""

    def __init__(self, workload: str, every: int, folder: Path) -> None:
        self._model, self._x, self._y = workloads.model(workload)
        self._every, self._folder = every, folder
        self.nbytes = 0  # of a checkpoint

    def train(self, memory: int | None, periods: int) -> float:
        """Steps per second of the last ``periods`` periods. ``memory``: the option."""
        run, clock, every = self._folder / "run", Clock(), self._every
        checkpoint = deepfreeze.Checkpoint(
            run, every, local=None, keep=1, final=False, resume="off", verbose=0, memory=memory
        )
        batches = tf.data.Dataset.from_tensors((self._x, self._y)).repeat(every * (TOUCHED + periods) + 1)
        self._model.make_train_function(force=True)
        gc.collect()
        self._model.fit(batches, verbose=0, shuffle=False, callbacks=[checkpoint, clock])
        self.nbytes = checkpoint.stats.nbytes
        shutil.rmtree(run)
        # The training begins where the last one has ended: a checkpoint is due where the count of steps is a multiple of ``every``. Any
        # whole number of periods has as many checkpoints as periods.
        times = clock.times[every * TOUCHED :]
        return every * periods / (times[every * periods] - times[0])


def measure(params: dict[str, Any]) -> list[dict[str, Any]]:
    """For each memory: its bytes, the shard's, the rates of all rounds, and the peak of captures."""
    trainings = Trainings(params["workload"], params["every"], Path(params["folder"]))
    trainings.train(None, 1)
    shard = trainings.nbytes
    given = [int(shards * shard * MORE) + BLOCKS for shards in params["memory"]]
    rates: list[list[float]] = [[] for _ in given]
    for n in range(params["rounds"]):
        jobs.progress(f"round {n + 1} of {params['rounds']}")
        order = list(range(len(given)))
        for at in order[n % len(order) :] + order[: n % len(order)]:
            rates[at].append(trainings.train(given[at], params["periods"]))
    found = []
    for nbytes, rate in zip(given, rates, strict=True):
        gc.collect()
        with sampled() as samples:
            trainings.train(nbytes, params["periods"])
        found.append({"bytes": nbytes, "shard": shard, "rate": rate, "peak": samples.most, "samples": samples.number})
    return found


if __name__ == "__main__":
    jobs.serve(measure)
