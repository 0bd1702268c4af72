"""The training of ``benchmarks.interval``: with an interval that adapts and with a static one, alone and beside a second writer, and
without checkpoints in between. Imports TensorFlow."""

from __future__ import annotations

import itertools
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

import deepfreeze
from benchmarks import jobs, workloads
from benchmarks.interval_periods import Course, overhead
from benchmarks.interval_writer import Writers
from deepfreeze.frameworks.tensorflow.variables import tf_variable
from deepfreeze.plan.never import NEVER

PERIODS = 5  # that a part of a training has at least: one of Auto's windows of four
LONGEST = 4  # times its seconds: a part ends then at the latest


class Clock(keras.callbacks.Callback):
    """Comes last: the seconds from one step's end to the next one's, callbacks included. The first step, which may be traced, has none.
    Ends the ``fit`` after ``seconds``, or later, when it has run for ``enough``, which is given the step at which the clock began."""

    def __init__(self, seconds: float, enough: Callable[[int], bool]) -> None:
        super().__init__()
        self._seconds, self._enough = seconds, enough
        self.begin, self._ends = 0, [0.0]

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Reads the clock."""
        now = time.perf_counter()
        if batch == 0:
            self.begin, self._ends = int(tf_variable(self.model.optimizer.iterations).numpy()), [now]
            return
        self._ends.append(now)
        took = now - self._ends[0]
        if took > self._seconds and (took > LONGEST * self._seconds or self._enough(self.begin)):
            self.model.stop_training = True

    def seconds(self) -> list[float]:
        """The seconds of each step but the first, of the ``fit`` that has ended."""
        return [after - before for before, after in itertools.pairwise(self._ends)]


class Trainings:
    """Trains one model again and again."""

    def __init__(self, params: dict[str, Any]) -> None:
        """``workload``, ``folder`` (on the disk), ``slots`` (the local tier), ``seconds`` (of a part of each training), ``parts`` (of
        each), ``levels`` (numbers of writers, ascending), ``epoch`` (steps; ``Auto`` profiles a hundredth of them)."""
        self._model, x, y = workloads.model(params["workload"])
        self._batches = tf.data.Dataset.from_tensors((x, y)).repeat()
        self._folder, self._slots = Path(params["folder"]), Path(params["slots"])
        self._seconds, self._parts = params["seconds"], params["parts"]
        self._levels, self._epoch = params["levels"], params["epoch"]

    def compare(self, goal: float) -> dict[str, Any]:
        """The trainings of one goal for the overhead, each in parts with plain steps in between. The number of writers grows until the
        static interval costs twice the goal; the next goal begins with it."""
        adaptive = self._checkpoint("auto", deepfreeze.plan.Auto(overhead=goal))
        alone = self._train("auto", adaptive, self._parts["alone"])
        own = adaptive.stats.overhead
        every = self._interval(adaptive)
        static = self._checkpoint("static", every)
        while True:
            with Writers(self._folder, self._levels[0]):
                beside = self._train("static", static, self._parts["static"])
                found = overhead(beside)
                jobs.progress(
                    f"{self._levels[0]} writers: every {every} steps cost {found:+.1%}; wanted: {2 * goal:.1%}"
                )
                if found < 2 * goal and len(self._levels) > 1:
                    self._levels = self._levels[1:]
                    continue
                adapted = self._train("auto", adaptive, self._parts["auto"])
            break
        decisions = [(one.step, one.interval, one.reason) for one in adaptive.stats.intervals]
        told = {"alone": own, "auto": adaptive.stats.overhead}
        for checkpoint in (adaptive, static):
            checkpoint.close()
        shutil.rmtree(self._folder / "auto")
        shutil.rmtree(self._folder / "static")
        courses = {"alone": alone, "static": beside, "auto": adapted}
        made = {"writers": self._levels[0], "every": every, "nbytes": static.stats.nbytes}
        data = {case: [course.data() for course in parts] for case, parts in courses.items()}
        return {**made, "courses": data, "decisions": decisions, "told": told}

    def _checkpoint(self, name: str, every: Any) -> deepfreeze.Checkpoint:
        return deepfreeze.Checkpoint(
            self._folder / name,
            every=every,
            resume="off",
            resume_epochs=False,
            final=False,
            verbose=0,
            local=self._slots,
            engine=deepfreeze.Engine(uncommitted=1),
        )

    def _train(self, name: str, checkpoint: deepfreeze.Checkpoint, parts: int) -> list[Course]:
        """So many parts of a training with checkpoints, and plain steps before and after each."""

        def captured(begin: int) -> list[int]:
            return [step for step in checkpoint.stats.steps if step > begin]

        def enough(begin: int) -> bool:
            since = begin
            if name == "auto":  # the profile's checkpoints don't count
                intervals = checkpoint.stats.intervals
                since = max(begin, intervals[0].step) if intervals else NEVER
            return len(captured(since)) > PERIODS

        courses, before = [], self._plain()
        for _ in range(parts):
            clock = self._fit(self._seconds[name], [checkpoint], enough)
            after = self._plain()
            courses.append(Course(clock.begin, clock.seconds(), captured(clock.begin), before + after))
            before = after
        return courses

    def _plain(self) -> list[float]:
        return self._fit(self._seconds["plain"], [], lambda begin: True).seconds()

    def _fit(self, seconds: float, callbacks: Sequence[Any], enough: Callable[[int], bool]) -> Clock:
        clock = Clock(seconds, enough)
        own = [*callbacks, clock]
        self._model.fit(self._batches, steps_per_epoch=self._epoch, verbose=0, shuffle=False, callbacks=own)
        return clock

    @staticmethod
    def _interval(checkpoint: deepfreeze.Checkpoint) -> int:
        """The interval that the policy has come to."""
        if not checkpoint.stats.intervals:
            raise SystemExit("Auto chose no interval: the training alone was too short")
        return checkpoint.stats.intervals[-1].interval


def measure(params: dict[str, Any]) -> list[dict[str, Any]]:
    """A comparison for each of ``goals``; see ``jobs.serve``."""
    trainings = Trainings(params)
    found = []
    for goal in params["goals"]:
        jobs.progress(f"overhead of {goal:.1%} at most ...")
        found.append(trainings.compare(goal))
    return found


if __name__ == "__main__":
    jobs.serve(measure)
