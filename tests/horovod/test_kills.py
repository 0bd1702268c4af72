"""SIGKILL of real training, of one rank or all: nothing committed is lost, and the job goes on as if nothing had been."""

import os
import random
import signal
import time
from collections import Counter

import deepfreeze
from deepfreeze.thaw.verify import verify
from tests.support import h5, jobs

STEPS, EVERY = 40, 2


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


def phase(run) -> str:
    """What the kill hit, as the run directory shows it."""
    partials = list(run.glob("*.partial-*"))
    if any((partial / "manifest.json").exists() for partial in partials):
        return "commit"
    if any(list(partial.glob("*.record")) for partial in partials):
        return "transfer, some ranks done"
    return "transfer" if partials else "training, capture or local write"


def test_a_killed_training_resumes_and_ends_with_the_very_state_of_one_never_killed(tmp_path):
    seed = int(os.environ.get("DEEPFREEZE_TEST_SEED", time.time_ns() % 10**6))
    print(f"seed {seed} (set DEEPFREEZE_TEST_SEED to repeat)")
    random.seed(seed)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    whole.mkdir()
    killed.mkdir()
    jobs.run("ranks.py", "keras", whole, STEPS, EVERY, "kind=dense", ranks=2)
    run = killed / "run"
    newest = 0
    phases: Counter[str] = Counter()
    for round_, one in enumerate([True, False, random.random() < 0.5]):
        job = jobs.start("ranks.py", "keras", killed, STEPS, EVERY, "kind=dense", "pause=0.1", ranks=2)
        kill_when(job, run, newest + EVERY, one, random.random() * 0.3)
        phases[phase(run)] += 1
        found = deepfreeze.latest(run)
        assert found.step >= newest + EVERY, "what was committed is still there"
        assert verify(run).ok, f"round {round_}"
        newest = found.step
        assert newest < STEPS
    print("rounds by phase:", dict(phases))
    assert sum(phases.values()) == 3
    jobs.run("ranks.py", "keras", killed, STEPS, EVERY, "kind=dense", ranks=2)
    ends = [folder / "run" / f"step-{STEPS:010d}" / "model.weights.h5" for folder in (killed, whole)]
    h5.assert_same(*ends)
    assert not list(run.glob("*.partial-*")), "what dead attempts left is cleared"
