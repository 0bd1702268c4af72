"""One rank of the paper's experiment: trainings in which approaches take turns, and what each of them cost. Imports TensorFlow."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import horovod.tensorflow as hvd
import keras
import tensorflow as tf

import deepfreeze
from benchmarks import jobs, workloads
from benchmarks.paper_approaches import KerasDefault, Timed, Took, VelocSharded, VelocSingle
from benchmarks.paper_largest import Largest
from benchmarks.paper_plan import Turn, extra, near, turns
from deepfreeze.frameworks.tensorflow.variables import tf_variable

TRACED = 1  # steps that take as long as tracing does
SETTLED = 2  # from this step after a checkpoint on, nothing is left of it
PLAIN = 2  # further steps at the end
# Approaches that are ours: what training waits for.
LEVELS = {"veloc-opt": "local", "captured": "captured"}


class Clock(keras.callbacks.Callback):
    """Seconds of each iteration, callbacks included: its begin is here, its end with ``End``, which comes last.

    Saves with ``savers`` (those that are no callbacks) where it is their turn. After the step that follows a checkpoint all
    wait until nothing of it goes on, on disk either; that is in no iteration's time.
    """

    def __init__(self, plan: Sequence[Turn], savers: dict[str, Any], settlers: dict[str, Any]) -> None:
        super().__init__()
        self._plan = {turn.step: turn for turn in plan}
        self._savers, self._settlers = savers, {**savers, **settlers}
        self.seconds: dict[int, float] = {}
        self.cpu: dict[int, float] = {}  # of this process, all threads
        self.settled: dict[int, float] = {}  # CPU seconds after the step behind a checkpoint
        self.took: dict[int, Took] = {}

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Begins an iteration."""
        step = self._step()
        if step - 1 in self._plan:
            begun = time.process_time()
            self._settlers[self._plan[step - 1].approach].settle()
            self.settled[step - 1] = time.process_time() - begun
            if hvd.rank() == 0:
                os.sync()
            hvd.allreduce(tf.constant(0.0), name="settled")
        self._begun, self._begun_cpu = time.perf_counter(), time.process_time()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Saves, if it is the turn of one of the savers."""
        turn = self._plan.get(self._step())
        if turn is not None and turn.approach in self._savers:
            self.took[turn.step] = self._savers[turn.approach].save(turn.step)

    def end(self) -> None:
        """Ends the iteration."""
        step = self._step()
        self.seconds[step] = time.perf_counter() - self._begun
        self.cpu[step] = time.process_time() - self._begun_cpu

    def _step(self) -> int:
        return int(tf_variable(self.model.optimizer.iterations).numpy())


class End(keras.callbacks.Callback):
    """Comes last."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Ends the iteration."""
        self._clock.end()


class Experiment:
    """One rank's model, and the trainings of it."""

    def __init__(self, params: dict[str, Any]) -> None:
        self._params = params
        self._rank, self._world = hvd.rank(), hvd.size()
        self._model, self._x, self._y = workloads.model(params["workload"], distributed=True)
        place = params["places"]
        self._savers = {
            "keras-default": KerasDefault(self._model, self._rank, Path(place["external"])),
            "veloc-single": VelocSingle(self._model, self._rank, place["single"]),
            "veloc-sharded": VelocSharded(self._model, self._rank, self._world, place["sharded"]),
        }

    def all(self) -> list[dict[str, Any]]:
        """Every training's checkpoints, one after the other."""
        found = []
        for training in ["placement per_layer", *self._params["variants"]]:
            if self._rank == 0:
                jobs.progress(f"{self._params['workload']}, {self._world} ranks: {training}")
            found += self._train(training)
        for saver in self._savers.values():
            saver.close()
        return found

    def _train(self, training: str) -> list[dict[str, Any]]:
        begin = int(tf_variable(self._model.optimizer.iterations).numpy())
        names = [*self._savers, *LEVELS] if training == "placement per_layer" else [training]
        savers = self._savers if training == "placement per_layer" else {}
        plan = turns(names, begin, self._params["every"], self._params["samples"])
        ours = self._ours(training, plan)
        clock = Clock(plan, savers, dict.fromkeys(set(names) - set(savers), ours))
        total = plan[-1].step + SETTLED + PLAIN - begin
        batches = tf.data.Dataset.from_tensors((self._x, self._y)).repeat(total)
        callbacks = [clock, deepfreeze.BroadcastState(), ours, End(clock)]
        self._model.fit(batches, verbose=0, shuffle=False, callbacks=callbacks)
        took = {**clock.took, **ours.took}
        due = {turn.step for turn in plan}
        plain = [at for at in clock.seconds if at > begin + TRACED and not {at, at - 1} & due]
        return [
            {
                "approach": turn.approach,
                "preparation": took[turn.step][0],
                "blocking": took[turn.step][1],
                "overhead": extra(clock.seconds, turn.step, plain),
                "cpu": extra(clock.cpu, turn.step, plain, clock.settled[turn.step]),
                "baseline": near(clock.seconds, turn.step, plain),
            }
            for turn in plan
            if turn.counts
        ]

    def _ours(self, training: str, plan: Sequence[Turn]) -> Timed | Largest:
        place = self._params["places"]
        if training == "largest axis":
            return Largest([turn.step for turn in plan], self._rank, self._world, place["largest"])
        kind = training.removeprefix("placement ")
        levels = {turn.step: LEVELS.get(turn.approach, "local") for turn in plan if turn.approach not in self._savers}
        run = Path(place["external"]) / f"run-{kind}"
        return Timed(run, levels, capture=deepfreeze.Capture(placement=kind), local=place["local"])


def measure(params: dict[str, Any]) -> list[dict[str, Any]]:
    """See ``jobs.serve``."""
    return Experiment(params).all()


if __name__ == "__main__":
    jobs.serve(measure)
