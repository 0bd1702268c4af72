"""SIGKILL of real training, of one rank or all: nothing committed is lost, and the job goes on as if nothing had been."""

import os
import random
import signal
import time
from collections import Counter

import deepfreeze
from deepfreeze.thaw.verify import verify
from tests.support import h5, jobs, restart
from tests.support.seed import SEED

ROUNDS = int(os.environ.get("DEEPFREEZE_TEST_ROUNDS", "3"))
STEPS, EVERY = 12 * ROUNDS + 4, 2  # a round takes fewer than 12: some are always left


def kill_when(job, run, step: int, one: bool, delay: float) -> None:
    """Waits for a committed step of at least ``step`` and then for ``delay`` seconds, and kills."""
    until = time.monotonic() + jobs.LIMIT_S
    while time.monotonic() < until and job.poll() is None:
        found = deepfreeze.latest(run) if (run / "run.json").exists() else None
        if found is not None and found.step >= step:
            break
        time.sleep(0.01)
    time.sleep(delay)
    assert job.poll() is None, f"the job ended by itself:\n{job.stdout.read()[-3000:]}"
    pids = [int(file.read_text()) for file in sorted(run.parent.glob("pid-*"))]
    assert len(pids) == 2
    for pid in [random.choice(pids)] if one else pids:
        os.kill(pid, signal.SIGKILL)
    # With one rank dead, the launcher ends the others.
    job.wait(120)
    jobs.kill(job)


def test_a_killed_training_resumes_and_ends_with_the_very_state_of_one_never_killed(tmp_path):
    print(f"seed {SEED} (DEEPFREEZE_TEST_SEED), {ROUNDS} rounds (DEEPFREEZE_TEST_ROUNDS)")
    random.seed(SEED)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    whole.mkdir()
    killed.mkdir()
    jobs.run("ranks.py", "keras", whole, STEPS, EVERY, "kind=dense", ranks=2)
    run = killed / "run"
    newest = 0
    phases: Counter[str] = Counter()
    for round_, one in enumerate([True, False, *(random.random() < 0.5 for _ in range(ROUNDS))][:ROUNDS]):
        job = jobs.start("ranks.py", "keras", killed, STEPS, EVERY, "kind=dense", "pause=0.1", ranks=2)
        kill_when(job, run, newest + EVERY, one, random.random() * 0.3)
        phases[restart.phase(run)] += 1
        found = deepfreeze.latest(run)
        assert found.step >= newest + EVERY, "what was committed is still there"
        assert verify(run).ok, f"round {round_}"
        newest = found.step
        assert newest < STEPS
    print("rounds by phase:", dict(phases))
    assert sum(phases.values()) == ROUNDS
    jobs.run("ranks.py", "keras", killed, STEPS, EVERY, "kind=dense", ranks=2)
    ends = [folder / "run" / f"step-{STEPS:010d}" / "model.weights.h5" for folder in (killed, whole)]
    h5.assert_same(*ends)
    assert not list(run.glob("*.partial-*")), "what dead attempts left is cleared"


def test_a_rank_stopped_for_longer_than_the_time_out_is_named_and_training_goes_on(tmp_path, testing_library):
    # Rank 1 stops itself, all its threads, when it is about to publish its part of the first checkpoint.
    log = tmp_path / "log"
    faults = {"DEEPFREEZE_LIBRARY": testing_library, "DEEPFREEZE_FAULT_LOG": str(log)}
    faults["DEEPFREEZE_FAULT"] = "sigstop:rename:rank-00001.record:1"
    options = ["kind=dense", "timeout=3", "on_error=warn", "pause=0.1"]
    job = jobs.start("ranks.py", "keras", tmp_path, 12, 4, *options, ranks=2, PYTHONWARNINGS="default", **faults)
    try:
        until = time.monotonic() + 120
        while not log.exists() and time.monotonic() < until and job.poll() is None:
            time.sleep(0.05)
        assert log.exists(), "rank 1 never came to its first checkpoint"
        time.sleep(5)
        os.kill(int((tmp_path / "pid-1").read_text()), signal.SIGCONT)
        output, _ = job.communicate(timeout=jobs.LIMIT_S)
    finally:
        jobs.kill(job)
    assert job.returncode == 0, output[-3000:]
    assert "step-0000000004: rank 1's record is missing (1 of 2 present) after 3 s" in output
    assert [info.step for info in deepfreeze.checkpoints(tmp_path / "run")] == [8, 12]
    assert verify(tmp_path / "run").ok
