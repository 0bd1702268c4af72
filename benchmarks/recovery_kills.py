"""Kills a training at random moments and starts it again, for ``benchmarks.recovery``. Imports neither TensorFlow nor Keras."""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import deepfreeze
from benchmarks.report import ROOT

PATIENCE = 180.0  # seconds for a start
LOOK = 0.02  # seconds between two looks at a training that starts or has no epoch behind it
PHASES = ("process start", "model", "restore", "first step")  # of a restart, in order


@dataclass(frozen=True)
class Plan:
    """A checkpoint every ``every`` steps, epochs of ``epoch`` steps (a multiple of ``every``), and so many kills."""

    workload: str
    every: int
    epoch: int
    kills: int

    @property
    def bound(self) -> int:
        """The most steps that a kill may lose: two intervals (CheckFreq, section 4.2)."""
        return 2 * self.every


@dataclass(frozen=True)
class Mark:
    """A moment of a life: ``at`` in seconds of the monotonic clock, ``step``: how many steps were done."""

    name: str
    at: float
    step: int


@dataclass(frozen=True)
class Life:
    """A process of the training, from its start to its kill."""

    started: float
    killed: float
    marks: Sequence[Mark]

    def restart(self) -> dict[str, float]:
        """Seconds of each of ``PHASES``: until the modules are imported, until the model is built, until it is restored, until the first
        new step is done, in which the train function is traced."""
        ends = [next(mark.at for mark in self.marks if mark.name == name) for name in ("imported", "built", "restored")]
        ends.append(self.steps[0].at)
        return {name: end - begin for name, begin, end in zip(PHASES, [self.started, *ends[:-1]], ends, strict=True)}

    @property
    def resumed(self) -> int:
        """The step at which the life began."""
        return next(mark.step for mark in self.marks if mark.name == "restored")

    @property
    def steps(self) -> list[Mark]:
        """The ends of its steps."""
        return [mark for mark in self.marks if mark.name == "step"]

    @property
    def seconds(self) -> list[float]:
        """What each step took but the first, checkpoints included."""
        ends = [mark.at for mark in self.steps]
        return [after - before for before, after in itertools.pairwise(ends)]


@dataclass(frozen=True)
class Loss:
    """What a kill lost: finished steps after the newest checkpoint, and seconds, the step under way included."""

    steps: int
    seconds: float


@dataclass
class Outcome:
    """All kills of one training. ``lost``: by the name of the policy, for each kill; ``restarts``: by the policy whose checkpoint the life
    began with, seconds of each phase; ``step``: seconds of all steps but first ones."""

    lost: dict[str, list[Loss]] = field(default_factory=lambda: {"steps": [], "epoch": []})
    restarts: dict[str, list[dict[str, float]]] = field(default_factory=lambda: {"steps": [], "epoch": []})
    step: list[float] = field(default_factory=list)


def marks(text: str) -> list[Mark]:
    """What a life has written."""
    lines = (line.split() for line in text.splitlines())
    return [Mark(name, float(at), int(step)) for name, at, step in lines]


def loss(life: Life, committed: int, step_seconds: float) -> Loss:
    """What the life's kill lost after checkpoint ``committed``. A step counts as ``step_seconds``: doing it again takes as long."""
    last = life.steps[-1]
    steps = last.step - committed
    return Loss(steps, steps * step_seconds + life.killed - last.at)


def newest(steps: Sequence[int], multiple_of: int = 1) -> int:
    """The newest committed step that ends an epoch of so many steps; 0 if there is none: training then begins anew."""
    return max((step for step in steps if step % multiple_of == 0), default=0)


class Killing:
    """A training in a directory of its own that is killed again and again."""

    def __init__(self, plan: Plan, folder: Path, seed: int) -> None:
        self._plan, self._run, self._marks = plan, folder / "run", folder / "marks"
        self._output, self._temporary = folder / "output", folder
        self._choose = random.Random(seed)

    def all(self) -> Outcome:
        """Lives until ``plan.kills`` kills are counted. The first life, which ends some time after an epoch is committed, is not counted.
        Restarts take turns: from the newest checkpoint, and from that of the last epoch's end, as if there were no later ones."""
        found, plan = Outcome(), self._plan
        found.step += self._live(first=True).seconds
        for number in range(plan.kills):
            name = ("steps", "epoch")[number % 2]
            if name == "epoch":
                self._forget(newest(self._committed(), plan.epoch))
            expected = newest(self._committed())
            life = self._live(within=plan.epoch * statistics.fmean(found.step))
            if life.resumed < expected:
                raise SystemExit(
                    f"{plan.workload}: step {expected} was committed, training went on from {life.resumed}"
                )
            found.restarts[name].append(life.restart())
            found.step += life.seconds
            committed, step = self._committed(), statistics.fmean(found.step)
            found.lost["steps"].append(loss(life, newest(committed), step))
            found.lost["epoch"].append(loss(life, newest(committed, plan.epoch), step))
        return found

    def _live(self, within: float = 0.0, first: bool = False) -> Life:
        """One life. It is killed at a random moment of the ``within`` seconds after its first new step, so that every part of an epoch is
        as likely as another. ``first``: after the first epoch is committed, and so many seconds as half an epoch takes."""
        plan = self._plan
        self._marks.unlink(missing_ok=True)
        params: dict[str, object] = {"workload": plan.workload, "run": str(self._run), "marks": str(self._marks)}
        params |= {"every": plan.every, "epoch": plan.epoch, "keep": plan.epoch // plan.every + 2}
        command = [sys.executable, "-m", "benchmarks.recovery_job", json.dumps(params)]
        # What a killed process leaves in its temporary directory goes with everything else.
        environment = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3", PYTHONWARNINGS="ignore", TMPDIR=str(self._temporary))
        with self._output.open("wb") as output:
            started = time.monotonic()
            job = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=output)
            try:
                self._await(job, lambda: any(mark.name == "step" for mark in self._read()))
                if first:
                    self._await(job, lambda: newest(self._committed(), plan.epoch) > 0)
                    within = statistics.fmean(Life(started, 0.0, self._read()).seconds) * plan.epoch / 2
                time.sleep(self._choose.uniform(0, within))
                if job.poll() is not None:
                    raise self._ended(job)
            finally:
                killed = time.monotonic()
                job.kill()
                job.wait()
        return Life(started, killed, self._read())

    def _await(self, job: subprocess.Popen, what: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not what():
            if job.poll() is not None:
                raise self._ended(job)
            if time.monotonic() > deadline:
                raise SystemExit(f"{self._plan.workload}: no step, or no epoch, after {PATIENCE:g} s")
            time.sleep(LOOK)

    def _ended(self, job: subprocess.Popen) -> SystemExit:
        text = self._output.read_text(errors="replace")[-3000:]
        return SystemExit(f"{self._plan.workload}: the training ended by itself with {job.returncode}:\n{text}")

    def _read(self) -> list[Mark]:
        return marks(self._marks.read_text()) if self._marks.exists() else []

    def _committed(self) -> list[int]:
        try:
            return [info.step for info in deepfreeze.checkpoints(self._run)]
        except deepfreeze.NotFoundError:
            return []  # the first start has not made it yet

    def _forget(self, step: int) -> None:
        """Removes what a training that saves at epochs' ends alone would not have left: all after ``step``."""
        for info in deepfreeze.checkpoints(self._run):
            if info.step > step:
                shutil.rmtree(info.path)
        for partial in self._run.glob("step-*.partial-*"):
            shutil.rmtree(partial)
