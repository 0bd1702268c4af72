"""How much a kill costs: the steps that a real training has lost, as it has noted them outside of its run, beside the bound that
``deepfreeze plan`` shows."""

from __future__ import annotations

import itertools
import os
import random
import signal
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from deepfreeze.events.restarts import newest_restarts
from deepfreeze.plan.recovery import recovery
from deepfreeze.store.run import Run
from tests.support.lives import Lives, lives
from tests.support.ranks import until
from tests.support.seed import SEED

pytestmark = [pytest.mark.crash, pytest.mark.tensorflow]
PAUSE = 0.005  # seconds that each step takes at least
SLOW = 0.1  # seconds that a checkpoint's bytes take at least, before its record is written: 20 of the shortest steps
LONGEST = 1.0  # seconds after the first new step within which a training is killed
MOST = (1, 2, 4)  # uncommitted checkpoints
# With one checkpoint in 4 steps training waits for commits, whatever may be uncommitted; with one in 20 it hardly does.
EVERY = (4, 20)
CAPTURES = (("auto", "update"), ("graph", "update"), ("auto", "late"))


@dataclass(frozen=True)
class Life:
    """One training, from its start to its kill. ``steps``: the ends of its steps, in seconds of the monotonic clock."""

    every: int
    uncommitted: int
    when: str
    how: str
    restart: float
    killed: float
    resumed: int
    steps: dict[int, float]

    @property
    def last(self) -> int:
        return max(self.steps, default=self.resumed)

    def bound(self, restored: int) -> int:
        """The most steps that this kill may cost. The commit of the first checkpoint after ``restored`` takes as long at least as it has
        been under way."""
        first = (restored // self.every + 1) * self.every
        commit = self.killed - self.steps[first] if first in self.steps else 0.0
        return recovery(self.every, self.uncommitted, PAUSE, commit, behind=int(self.when == "late")).steps


class Kills:
    """Starts trainings of one run, and kills them. ``choose``: when, and with which options."""

    def __init__(self, trainings: Lives, folder: Path, choose: random.Random) -> None:
        self.run = folder / "run"
        self._trainings, self._notes, self._choose = trainings, folder / "notes", choose

    def live(self, every: int, uncommitted: int, last: bool = False) -> Life:
        """A training that is killed at a random moment after its first new step; ``last``: when the run tells of a restart."""
        self._notes.unlink(missing_ok=True)
        transfers, (path, when) = self._choose.choice((1, uncommitted)), self._choose.choice(CAPTURES)
        options: dict[str, Any] = {"every": every, "uncommitted": uncommitted, "in_flight": uncommitted + 2}
        options |= {"transfers": transfers, "path": path, "when": when, "local": None, "keep": 20, "verbose": 0}
        fault = f"delay={SLOW * 1000:.0f}:pwrite:model.weights.h5:1+"
        after = self._choose.uniform(0, LONGEST)
        begun = time.monotonic()
        pid = self._trainings.start(run=self.run, notes=self._notes, pause=PAUSE, fault=fault, **options)
        until(lambda: self._noted("step"))
        if last:
            (resumed,) = self._noted("resumed")
            until(lambda: (told := newest_restarts(Run.open(self.run))) is not None and (told.restored or not resumed))
        else:
            time.sleep(after)
        os.kill(pid, signal.SIGKILL)
        assert self._trainings.ended() == -signal.SIGKILL
        killed, steps = time.monotonic(), self._noted("step")
        (resumed,) = self._noted("resumed")
        how = f"every={every}, uncommitted={uncommitted}, transfers={transfers}, {path}, {when}, killed after {after:.3f} s"
        return Life(every, uncommitted, when, how, min(steps.values()) - begun, killed, resumed, steps)

    def _noted(self, name: str) -> dict[int, float]:
        lines = self._notes.read_text().splitlines() if self._notes.exists() else []
        return {int(step): float(at) for kind, step, at in map(str.split, lines) if kind == name}


def interval(values: Sequence[float]) -> str:
    """The mean with its 95 % interval, in milliseconds."""
    error = 1.96 * statistics.stdev(values) / len(values) ** 0.5
    return f"{statistics.mean(values) * 1e3:.1f} +- {error * 1e3:.1f} ms"


@pytest.mark.slow
@pytest.mark.parametrize("kills", [4, pytest.param(100, marks=pytest.mark.full)])
def test_recovery_is_within_its_bound(tmp_path, testing_library, kills, record_property):
    """A kill at any moment loses no more finished steps than the bound says. The store is slow, and one run lives through all kills: with
    other intervals, other numbers of uncommitted checkpoints and other captures."""
    choose = random.Random(SEED)
    found: list[tuple[int, int, Life]] = []  # the steps lost, the bound
    with lives(tmp_path, testing_library) as started:
        trainings = Kills(started, tmp_path, choose)
        before = trainings.live(EVERY[0], 1)
        assert before.resumed == 0
        for number in range(1, kills + 1):
            uncommitted, every = MOST[number % len(MOST)], EVERY[number // len(MOST) % len(EVERY)]
            life = trainings.live(every, uncommitted, last=number == kills)
            lost, bound = before.last - life.resumed, before.bound(life.resumed)
            assert 0 <= lost <= bound, (
                f"seed {SEED}, kill {number}, {before.how}: {lost} steps lost, at most {bound} may be"
            )
            found.append((lost, bound, before))
            before = life
    restarts = newest_restarts(Run.open(trainings.run))
    assert restarts is not None
    assert restarts.restored or not before.resumed, "few kills may all have come before the first commit"
    own = [life.restart for _, _, life in found] + [before.restart]
    assert 0 < restarts.seconds <= max(own), "the job itself has measured no more than who has started it"
    if kills > 50:
        assert any(lost > bound - life.every for lost, bound, life in found), "an interval less would be too little"
    steps = [b - a for _, _, life in found for a, b in itertools.pairwise(life.steps.values())]
    worst = max(found, key=lambda one: (one[0] / one[1], one[0]))
    record_property(
        "points",
        f"kills of a training: {len(found)} within their bounds (seed {SEED}); steps lost {[lost for lost, _, _ in found]}; nearest: "
        f"{worst[0]} of {worst[1]} ({worst[2].how}); restart {interval(own)}, step {interval(steps)}",
    )
