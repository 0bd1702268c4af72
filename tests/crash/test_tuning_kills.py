"""A training that is killed while its policy tries the engine, at every checkpoint that the search takes."""

from __future__ import annotations

import random
import signal

import pytest

from deepfreeze.inspect.verify import verify
from deepfreeze.plan.budget_section import BudgetSection
from deepfreeze.store.plan import read_section
from deepfreeze.store.run import Run
from tests.support import restart
from tests.support.lives import Lives, lives
from tests.support.seed import SEED

pytestmark = [pytest.mark.crash, pytest.mark.tensorflow]
KEEP = 3
MOST = 40  # checkpoints of a profile and a search
# A checkpoint takes so many milliseconds, however many are written at once: so the search comes to several at once.
FAR = "delay=30:pwrite:model.weights.h5:1+"
# How a training dies, by the calls of one checkpoint: the file's bytes, the record's name, the manifest's, and the commit itself.
DEATHS = {
    "bytes": ("kill-half:pwrite:model.weights.h5:{}", 1),
    "record": ("kill-before:open:rank-00000.record:{}", 1),
    "manifest": ("kill-before:rename:manifest.json:{}", 1),
    "before-commit": ("kill-before:rename:.partial-:{}", 3),
    "after-commit": ("kill-after:rename:.partial-:{}", 3),
}


class Killed:
    """The trainings of one run, one after the other."""

    def __init__(self, trainings: Lives, folder) -> None:
        self._trainings, self._notes, self.run = trainings, folder / "notes", folder / "run"
        self.before: list[int] = []  # the committed steps that the last kill has left

    def live(self, fault: str, how: str) -> bool:
        """A training that meets ``fault``, and the promise about it. Returns whether it was killed."""
        self._notes.unlink(missing_ok=True)
        options = {"budget": 0.5, "local": None, "writers": 2, "in_flight": 4, "keep": KEEP, "verbose": 0}
        fault = f"{FAR},{fault}" if fault else FAR
        self._trainings.start(run=self.run, notes=self._notes, pause=0.002, fault=fault, **options)
        killed = self._trainings.ended()
        assert killed in (0, -signal.SIGKILL)
        run = Run.open(self.run)
        now, notes = run.committed(), self._notes.read_text().split()
        resumed = int(notes[notes.index("resumed") + 1])
        assert resumed >= max(self.before, default=0), f"{how}: it went on from an older step, {resumed}"
        for step in now:
            assert verify(self.run, step).ok, f"{how}: step {step}"
        for step in set(self.before) - set(now):
            assert len([one for one in now if one > step]) >= KEEP, f"{how}: step {step} is lost; {now} are there"
        assert max(now, default=0) >= max(self.before, default=0), how
        self.before = now
        return killed != 0


@pytest.mark.slow
@pytest.mark.parametrize("death", ["random", *(pytest.param(name, marks=pytest.mark.full) for name in DEATHS)])
def test_tuning_loses_no_checkpoint(tmp_path, testing_library, death, record_property):
    """It is killed at every checkpoint that the search takes, one after the other in one run: "random", at three of them. After each
    kill the newest committed checkpoint is there, and what ``keep`` holds, and the next start goes on from there, and with the search."""
    choose, kills = random.Random(SEED), 0
    numbers = sorted(choose.sample(range(1, 12), 3)) if death == "random" else range(1, MOST + 2)
    with lives(tmp_path, testing_library) as trainings:
        job = Killed(trainings, tmp_path)
        for number in numbers:
            fault, calls = choose.choice(list(DEATHS.values())) if death == "random" else DEATHS[death]
            how = f"seed {SEED}, checkpoint {number}, {fault}"
            killed = job.live(fault.format(number * calls), how)
            cut = read_section(Run.open(job.run), "budget")
            if not killed or (cut is not None and cut["auto"] is not None):
                break  # the search was over before: the lives before have tried much of it
            kills += 1
        assert not job.live("", f"seed {SEED}, without a kill")
    assert kills >= (1 if death == "random" else 4), f"seed {SEED}: {kills} kills"
    record_property("points", f"kills at checkpoints of a search, {death}: {kills} (seed {SEED})")
    found = BudgetSection.from_json(read_section(Run.open(job.run), "budget"))
    assert found.chosen is not None and found.auto is not None
    assert not restart.leftovers(job.run), restart.leftovers(job.run)
