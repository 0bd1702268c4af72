"""SIGKILL of real training, of one rank or all: nothing committed is lost, and the job goes on as if nothing had been."""

import os
import random
import signal
import time
from contextlib import suppress

import pytest

import deepfreeze
from deepfreeze.inspect.verify import verify
from tests.support import h5, jobs, restart
from tests.support.horovod import case
from tests.support.seed import SEED

pytestmark = [pytest.mark.ranks, pytest.mark.tensorflow]
EVERY = 2
ROUNDS = int(os.environ.get("DEEPFREEZE_TEST_ROUNDS", "9"))
# The ranks whose transfer of one checkpoint is held until they are killed in it; with none, the kill comes at a random moment.
HOLDS = {"transfer": [0, 1], "": [], "transfer, some ranks done": [1]}


def kill_when(job, run, step: int, phase: str, one: bool) -> None:
    """Waits for a committed step of at least ``step``, and for the phase, and kills."""

    def reached() -> bool:
        with suppress(FileNotFoundError):  # what is looked at may be renamed just then
            found = deepfreeze.latest(run) if (run / "run.json").exists() else None
            return found is not None and found.step >= step and phase in ("", restart.phase(run))
        return False

    job.until(reached)
    if not phase:
        time.sleep(random.random() * 0.3)
    pids = [job.pid(rank) for rank in range(2)]
    for pid in [random.choice(pids)] if one else pids:
        os.kill(pid, signal.SIGKILL)
    assert job.wait(), "with one rank dead, the launcher ends the others"


@pytest.mark.parametrize(
    ("rounds", "when"),
    [
        pytest.param(1, "update", marks=pytest.mark.timing, id="1"),
        pytest.param(ROUNDS, "update", marks=[pytest.mark.full, pytest.mark.timeout(60 * ROUNDS)], id="many"),
        pytest.param(ROUNDS, "late", marks=[pytest.mark.full, pytest.mark.timeout(60 * ROUNDS)], id="many-late"),
    ],
)
def test_a_killed_training_ends_with_the_very_state_of_one_never_killed(two, tmp_path, testing_library, rounds, when):
    """With many rounds, every phase is hit with one rank killed and with all."""
    print(f"seed {SEED} (DEEPFREEZE_TEST_SEED), {rounds} rounds (DEEPFREEZE_TEST_ROUNDS)")
    random.seed(SEED)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    whole.mkdir()
    killed.mkdir()
    training = {"name": "ranks", "api": "keras", "steps": 12 * rounds + 4, "every": EVERY, "kind": "dense"}
    two.run(**training, folder=whole)
    run = killed / "run"
    newest, phases = 0, set()
    for round_ in range(rounds):
        phase = list(HOLDS)[round_ % len(HOLDS)]
        held = newest + 4 * EVERY  # no checkpoint that the start finishes from the local tier
        faults = dict.fromkeys(HOLDS[phase], f"delay=600000:fdatasync:step-{held:010d}.partial:1")
        launch = case(**training, when=when, faults=faults, folder=killed, pause=0.1)
        with jobs.job(*launch, ranks=2, DEEPFREEZE_LIBRARY=testing_library) as job:
            kill_when(job, run, held - EVERY if phase else newest + EVERY, phase, one=round_ % 2 == 0)
        phases.add(restart.phase(run))
        found = deepfreeze.latest(run)
        assert newest + EVERY <= found.step < training["steps"], "all that was committed, and some steps are left"
        assert verify(run).ok, f"round {round_}"
        newest = found.step
    assert phases >= {phase for phase in list(HOLDS)[:rounds] if phase}
    assert all(stats["resumed"] >= newest for stats in two.run(**training, when=when, folder=killed))
    ends = [folder / "run" / f"step-{training['steps']:010d}" / "model.weights.h5" for folder in (killed, whole)]
    h5.assert_same(*ends)
    assert not list(run.glob("*.partial-*")), "what dead attempts left is cleared"


@pytest.mark.timing
def test_a_rank_stopped_for_longer_than_the_time_out_is_named(two, tmp_path):
    """Rank 1 stops itself, all its threads, when it is about to make its part of the first checkpoint durable, and is woken when rank 0
    has given that step up. Training goes on."""
    log, run = tmp_path / "log", tmp_path / "run"
    options = {"kind": "dense", "timeout": 3, "on_error": "warn", "pause": 0.1}
    stop = {1: "sigstop:fdatasync:model.weights.h5:1"}
    two.start("ranks", stop, log, api="keras", folder=tmp_path, steps=12, every=4, **options)
    two.until(lambda: log.exists() and list(run.glob("step-0000000004.failed-*")))
    os.kill(two.pids[1], signal.SIGCONT)
    first, _second = two.values()
    assert any("step-0000000004: rank 1's record is missing (1 of 2 present) after 3 s" in w for w in first["warnings"])
    assert [info.step for info in deepfreeze.checkpoints(run)] == [8, 12]
    assert verify(run).ok
