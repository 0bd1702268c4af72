"""``Engine(uncommitted=1)``: a training that is killed at any moment loses one checkpoint at most, whatever the store does."""

from __future__ import annotations

import json
import random
import time

import pytest

from tests.support import jobs
from tests.support.seed import SEED

pytestmark = [pytest.mark.crash, pytest.mark.tensorflow, pytest.mark.full]
EVERY, ROUNDS = 5, 8
# Every commit takes as long as the steps of two or three intervals, so the next checkpoint always waits.
SLOW = "delay=150:fdatasync:model.weights.h5:1+"


@pytest.mark.parametrize(("path", "when"), [("auto", "update"), ("graph", "update"), ("auto", "late")])
def test_at_most_one_checkpoint_is_lost(tmp_path, testing_library, path, when, record_property):
    """So the steps that are lost are fewer than two intervals: those since the last commit, and those of the checkpoint under way. So it
    is with late captures too: each waits for the last one's commit."""
    choose, lost = random.Random(SEED), []
    run, log = tmp_path / "run", tmp_path / "steps"
    flat = [f"every={EVERY}", "local=null", "uncommitted=1", "keep=3", f'log="{log}"', "pause=0.01", "verbose=0"]
    flat += [f'path="{path}"', f'when="{when}"']
    resumed = 0
    for number in range(ROUNDS):
        log.unlink(missing_ok=True)
        environment = {"DEEPFREEZE_LIBRARY": testing_library, "DEEPFREEZE_FAULT": SLOW}
        with jobs.job("small.py", run, 100_000, *flat, **environment) as job:
            job.until(log.exists)
            time.sleep(choose.uniform(0, 3))
            job.process.kill()
            job.process.wait(60)
        last = int(log.read_text().split()[-1])
        told = jobs.run(
            "small.py", run, 1, "every=1000000", "local=null", "verbose=0", "final=false", "resume_epochs=false"
        )
        resumed = json.loads(told.splitlines()[-1])["resumed"] or 0
        lost.append(last - resumed)
        assert 0 <= lost[-1] <= 2 * EVERY, f"seed {SEED}, round {number}: trained to {last}, resumed at {resumed}"
    record_property("points", f"steps lost in {ROUNDS} kills: {lost}, with a checkpoint every {EVERY} (seed {SEED})")
    assert resumed > 0
