"""One rank of a training whose step is profiled, for ``benchmarks.checkflow``. Imports TensorFlow."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import horovod.tensorflow as hvd
import keras
import tensorflow as tf

import deepfreeze
from benchmarks import jobs, workloads
from benchmarks.capture_memory import sampled
from deepfreeze.store import step_plans
from deepfreeze.store.run import Run

BEFORE, BEHIND = 10, 45  # steps before the marks, and from the third marked checkpoint on


class Clock(keras.callbacks.Callback):
    """Seconds of each step."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Begins a step."""
        self._begun = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Ends it."""
        self.seconds.append(time.perf_counter() - self._begun)


def measure(params: dict[str, Any]) -> dict[str, Any]:
    """The profile, on rank 0, and what today's captures take: seconds of a step without checkpoints and with them, the most bytes that the
    captures held, and how many of the steps were committed. See ``jobs.serve``."""
    model, x, y = workloads.model(params["workload"], distributed=True)
    run, every = Path(params["folder"]) / "run", params["every"]
    steps = BEFORE + 3 * every + BEHIND
    plain, clock = Clock(), Clock()

    def train(count: int, *callbacks: Any) -> None:
        batches = tf.data.Dataset.from_tensors((x, y)).repeat(count)
        model.fit(batches, verbose=0, shuffle=False, callbacks=list(callbacks))

    train(steps // 2, plain, deepfreeze.BroadcastState())
    checkpoint = deepfreeze.Checkpoint(
        run,
        every,
        local=None,
        final=False,
        resume="off",
        verbose=0,
        engine=deepfreeze.Engine(io="direct"),
        capture=deepfreeze.Capture(profile=True),
    )
    train(steps, clock, deepfreeze.BroadcastState(), checkpoint)
    # The sampling takes time of its own, so it has a training of its own.
    again = deepfreeze.Checkpoint(
        run.with_name("sampled"),
        every,
        local=None,
        final=False,
        resume="off",
        verbose=0,
        engine=deepfreeze.Engine(io="direct"),
    )
    with sampled() as held:
        train(max(10, 2 * every), deepfreeze.BroadcastState(), again)
    found = step_plans.read_profile(Run.open(run)) if hvd.rank() == 0 else None
    return {
        "profile": None if found is None else dict(found.profile),
        "plain": plain.seconds[BEFORE:],
        "seconds": clock.seconds[BEFORE:],
        "held": held.most,
        "committed": len(checkpoint.stats.committed),
        "taken": len(checkpoint.stats.steps),
        "nbytes": checkpoint.stats.nbytes,
    }


if __name__ == "__main__":
    jobs.serve(measure)
