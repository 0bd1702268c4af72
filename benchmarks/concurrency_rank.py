"""The trainings of benchmarks.concurrency, in one process."""

from __future__ import annotations

import contextlib
import gc
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

import deepfreeze
from benchmarks import capture_memory, jobs, machine, stored, workloads
from benchmarks.concurrency_rows import turns
from deepfreeze.engine.options import Engine
from deepfreeze.frameworks.tensorflow.variables import tf_variable

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


class Touching:
    """A policy: a checkpoint in each of the first steps, which touch the engine's memory, and then every ``every`` steps."""

    def __init__(self, begin: int, touch: int, every: int) -> None:
        self._touched, self._every = begin + touch, every

    def next_step(self, step: int) -> int:
        """See ``deepfreeze.plan.policy.Policy``."""
        return step + 1 if step < self._touched else (step // self._every + 1) * self._every


class Trainings:
    """Trains one model again and again, with a new run and a new callback each time."""

    def __init__(self, workload: str, folder: Path) -> None:
        self._model, self._x, self._y = workloads.model(workload)
        self.run = folder / "run"
        self.nbytes = 0  # of a checkpoint
        self.superseded = 0  # of the last training's checkpoints
        self.commits: list[
            float
        ] = []  # of the last training: seconds from each hand-over to the commit, in the steps that were timed

    def train(self, every: int | None, skip: int, steps: int, touch: int = 0, **options: Any) -> float:
        """Steps per second of ``steps`` steps, after ``skip`` ones. ``every``: None for a training without checkpoints; ``touch``: how many
        of the first steps have a checkpoint besides; ``options``: of ``deepfreeze.Checkpoint``. RuntimeError if a checkpoint is neither
        committed nor superseded."""
        clock = Clock()
        begin = int(tf_variable(self._model.optimizer.iterations).numpy())
        due = Touching(begin, touch, every) if every and touch else every
        checkpoint = due and deepfreeze.Checkpoint(self.run, due, final=False, resume="off", verbose=0, **options)
        batches = tf.data.Dataset.from_tensors((self._x, self._y)).repeat(skip + steps + 1)
        self._model.make_train_function(force=True)
        gc.collect()
        self._model.fit(batches, verbose=0, shuffle=False, callbacks=[*([checkpoint] if checkpoint else []), clock])
        if checkpoint:
            stats = checkpoint.stats
            self.nbytes = stats.nbytes
            self.superseded = len(stats.superseded)
            self.commits = [seconds for step, seconds in stats.committed.items() if step > begin + skip]
            if stats.commits + self.superseded != stats.captures:
                raise RuntimeError(
                    f"{stats.commits} of {stats.captures} checkpoints were committed, {self.superseded} superseded"
                )
            checkpoint.close()
            shutil.rmtree(self.run)
        # The training begins where the last one has ended: a checkpoint is due where the count of steps is a multiple of ``every``. Any
        # whole number of periods has as many checkpoints as periods.
        return steps / (clock.times[skip + steps] - clock.times[skip])


class Setting:
    """How to train, as ``concurrency_trainings.trained`` has it."""

    def __init__(self, trainings: Trainings, asked: dict[str, Any]) -> None:
        self._trainings, self._asked = trainings, asked
        self.bytes: int | None = None
        self.commits: list[float] = []  # of all trainings that were timed
        self.options: dict[str, Any] = {}
        if asked["every"] is None:
            return
        engine = Engine(**asked.get("engine", {}))
        if shards := asked.get("shards"):
            self.bytes = int(shards * trainings.nbytes * MORE) + engine.writers * engine.chunk_bytes
        self.options = {"local": None, "keep": 1, "engine": engine, "memory": self.bytes}
        self.options |= {name: asked[name] for name in ("wait_for", "touch") if name in asked}

    def rate(self) -> float:
        """Steps per second."""
        rate = self._trainings.train(self._asked["every"], self._asked["skip"], self._asked["steps"], **self.options)
        self.commits += self._trainings.commits if self.options else []
        return rate

    def sampled(self) -> dict[str, Any]:
        """The peaks of a training that is not timed."""
        if not self._asked.get("sampled"):
            return {}
        gc.collect()
        with _sampled(self._trainings.run) as (captures, checkpoints):
            self._trainings.train(self._asked["every"], self._asked["skip"], self._asked["sampled"], **self.options)
        of_captures = {"peak": captures.most, "samples": captures.number}
        return {**of_captures, "stored": checkpoints.most, "looks": checkpoints.number}


@contextlib.contextmanager
def _sampled(run: Path) -> Iterator[tuple[capture_memory.Samples, capture_memory.Samples]]:
    with capture_memory.sampled() as captures, stored.sampled(run) as checkpoints:
        yield captures, checkpoints


def measure_trainings(params: dict[str, Any]) -> list[dict[str, Any]]:
    """See ``concurrency_trainings.trained``."""
    trainings = Trainings(params["workload"], Path(params["folder"]))
    trainings.train(2, 2, 2, local=None, keep=1)  # says how large a shard is
    settings = [Setting(trainings, asked) for asked in params["settings"]]
    rates: dict[Setting, list[float]] = {setting: [] for setting in settings}
    for n in range(params["rounds"]):
        jobs.progress(f"round {n + 1} of {params['rounds']}")
        for setting in turns(n, settings):
            rates[setting].append(setting.rate())
    shard = trainings.nbytes
    return [
        {"bytes": one.bytes, "shard": shard, "rate": rate, "commits": one.commits, **one.sampled()}
        for one, rate in rates.items()
    ]


def measure_every_step(params: dict[str, Any]) -> dict[str, Any]:
    """Trainings with a checkpoint in every step, each between two samples of the disk. ``order``: the numbers of transfers of the
    trainings, in order; ``saved``: their bytes per second; ``superseded``: how many checkpoints of each were given up; ``disk``: bytes
    per second of the samples, of which there is one more."""
    folder = Path(params["folder"])
    trainings = Trainings(params["workload"], folder)
    trainings.train(1, 1, 1)  # says how large a checkpoint is
    limits = machine.Limits(trainings.nbytes, folder, huge=True)
    disk: list[float] = []
    saved: list[float] = []
    superseded: list[int] = []
    order = [many for n in range(params["rounds"]) for many in turns(n, params["transfers"])]
    try:
        limits.measure_disk()  # warms up
        limits.measure_disk()
        disk.append(limits.nbytes / limits.newest(machine.DIRECT))
        for number, many in enumerate(order):
            jobs.progress(f"training {number + 1} of {len(order)}, {many} at once")
            engine = Engine(transfers=many)
            saved.append(trainings.nbytes * trainings.train(1, params["filling"], params["steps"], engine=engine))
            superseded.append(trainings.superseded)
            limits.measure_disk()
            disk.append(limits.nbytes / limits.newest(machine.DIRECT))
    finally:
        limits.close()
    return {"order": order, "disk": disk, "saved": saved, "superseded": superseded}


MEASURES = {"trainings": measure_trainings, "every step": measure_every_step}


def measure(params: dict[str, Any]) -> Any:
    """What ``params`` asks for."""
    return MEASURES[params["measure"]](params)


if __name__ == "__main__":
    jobs.serve(measure)
