"""Kills a training at random moments and starts it again, for ``benchmarks.recovery``. Imports neither TensorFlow nor Keras."""

from __future__ import annotations

import random
import shutil
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import deepfreeze
from benchmarks.recovery_life import Life, Training


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
        kept = plan.epoch // plan.every + 2
        self._training = Training(folder, workload=plan.workload, every=plan.every, epoch=plan.epoch, keep=kept)
        self._plan, self._choose = plan, random.Random(seed)

    def all(self) -> Outcome:
        """Lives until ``plan.kills`` kills are counted. The first life, which ends some time after an epoch is committed, is not counted.
        Restarts take turns: from the newest checkpoint, and from that of the last epoch's end, as if there were no later ones."""
        found, plan = Outcome(), self._plan
        found.step += self._live(first=True).seconds
        for number in range(plan.kills):
            name = ("steps", "epoch")[number % 2]
            if name == "epoch":
                self._forget(newest(self._training.committed(), plan.epoch))
            expected = newest(self._training.committed())
            life = self._live(within=plan.epoch * statistics.fmean(found.step))
            if life.resumed < expected:
                raise SystemExit(
                    f"{plan.workload}: step {expected} was committed, training went on from {life.resumed}"
                )
            found.restarts[name].append(life.restart())
            found.step += life.seconds
            committed, step = self._training.committed(), statistics.fmean(found.step)
            found.lost["steps"].append(loss(life, newest(committed), step))
            found.lost["epoch"].append(loss(life, newest(committed, plan.epoch), step))
        return found

    def _live(self, within: float = 0.0, first: bool = False) -> Life:
        """One life. It is killed at a random moment of the ``within`` seconds after its first new step, so that every part of an epoch is
        as likely as another. ``first``: after the first epoch is committed, and so many seconds as half an epoch takes."""
        training, epoch = self._training, self._plan.epoch
        training.start()
        try:
            training.wait_for_a_step()
            if first:
                training.wait(lambda: newest(training.committed(), epoch) > 0)
                within = statistics.fmean(Life(0.0, 0.0, training.marks()).seconds) * epoch / 2
            time.sleep(self._choose.uniform(0, within))
            training.check()
        finally:
            life = training.kill()
        return life

    def _forget(self, step: int) -> None:
        """Removes what a training that saves at epochs' ends alone would not have left: all after ``step``."""
        for info in deepfreeze.checkpoints(self._training.run):
            if info.step > step:
                shutil.rmtree(info.path)
        for partial in self._training.run.glob("step-*.partial-*"):
            shutil.rmtree(partial)
