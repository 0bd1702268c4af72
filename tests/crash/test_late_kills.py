"""A kill of a training with late captures loses one step more at most, and nothing else is different."""

import random

import pytest

import deepfreeze
from tests.support import jobs, trainings
from tests.support.seed import SEED

pytestmark = [pytest.mark.crash, pytest.mark.tensorflow, pytest.mark.full]
EVERY, ROUNDS = 3, 4
STEPS = 2 * EVERY * (ROUNDS + 2) + 1


@pytest.mark.parametrize("when", ["update", "late"])
def test_a_kill_loses_the_steps_since_the_last_one_handed_over(when, tmp_path, record_property):
    """A capture is handed over at the end of its step, a late one at the end of the next. SIGKILL comes at random steps, but first between
    the two, then right behind the second. The training that goes on saves what stock Keras saves in one that was never killed."""
    choose, lost, start = random.Random(SEED), [], 0
    run, late = tmp_path / "run", when == "late"
    ended, hold = tmp_path / "ended", tmp_path / "hold"
    jobs.run("gated.py", run, STEPS, tmp_path, "stock", EVERY)
    arguments = ("gated.py", run, STEPS, tmp_path, when, EVERY)
    for number in range(ROUNDS):
        ended.write_text("")
        # Held there, a training has handed over what it had to after the steps before this one.
        near = (2 * EVERY + 1, EVERY + 2)
        killed = start + (near[number] if number < len(near) else choose.randint(EVERY + 2, 2 * EVERY + 2))
        hold.write_text(str(killed))
        expected = (killed - 1 - late) // EVERY * EVERY
        with jobs.job(*arguments) as job:
            job.until(lambda step=killed: ended.read_text() == str(step))
            job.until(lambda step=expected: getattr(deepfreeze.latest(run), "step", 0) >= step)
            job.process.kill()
            job.process.wait(60)
            assert f"from step {start}\n" in job.output(), f"seed {SEED}, round {number}"
        assert deepfreeze.latest(run).step == expected, f"seed {SEED}, round {number}: killed at step {killed}"
        start = expected
        lost.append(killed - expected)
    hold.unlink()
    assert f"from step {start}\n" in jobs.run(*arguments)
    assert all(steps <= EVERY + late for steps in lost) and lost[0] == 1 + late * EVERY
    record_property("points", f"steps lost in {ROUNDS} kills, saved every {EVERY}, {when}: {lost} (seed {SEED})")
    saved = [*range(EVERY, STEPS, EVERY), STEPS]
    trainings.assert_run_is(run, tmp_path, saved, resumed=True)
