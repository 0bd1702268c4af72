"""SIGKILL in every phase: what is committed stays right, nothing half-written counts, and what is whole can be finished."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from pathlib import Path

import pytest

import veloc_bindings as vb
from tests.support import content, restart
from tests.support.ranks import committed, options, ranks, slots
from tests.support.seed import SEED

pytestmark = pytest.mark.crash
WORLD = 2
STEPS = (10, 20, 30)
RENAMED = f".partial-{content.attempt_id(1).hex()} to "
RECORD = "rank-0000{victim}.record.tmp to "
MANIFEST = "manifest.json.tmp to "

# phase: (action, call, path, highest count at which it certainly happens, only rank 0 does it)
PHASES = {
    "capture": ("kill-before", "fallocate", ".slot", 1, False),  # handed over, and nothing of it written
    "local write": ("kill-half", "pwrite", ".slot", 30, False),
    "transfer": ("kill-half", "pwrite", "model.weights.h5", 20, False),
    "before record rename": ("kill-before", "rename", RECORD, 3, False),
    "after record rename": ("kill-after", "rename", RECORD, 3, False),
    "before manifest rename": ("kill-before", "rename", MANIFEST, 3, True),
    "after manifest rename": ("kill-after", "rename", MANIFEST, 3, True),
    "before directory rename": ("kill-before", "rename", RENAMED, 3, True),
    "after directory rename": ("kill-after", "rename", RENAMED, 3, True),
}

# The same where a graph captures straight into a slot: nothing is written to it but its table and its header.
CAPTURED = {
    **PHASES,
    "capture": ("kill-before", "pwrite", ".slot", 3, False),  # a slot is marked as not whole, or becomes so
    "local write": ("kill-half", "pwrite", ".slot", 12, False),
}
MEMORY = Path("/dev/shm")


def crash(tmp_path: Path, library: str, fault: str, victim: int, everyone: bool, **more) -> str:
    """Runs a job until the victim kills itself; returns the line it left in the log."""
    restart.make_run(tmp_path / "run")
    log = tmp_path / "log"
    plans = ["" if rank != victim else fault for rank in range(WORLD)]
    with ranks(library, *plans, log=str(log)) as group:
        for number, rank in enumerate(group):
            rank.send("open", **options(tmp_path, number, WORLD, keep=3, in_flight=3, slots=3, **more))
            for step in STEPS:
                rank.send("submit", step=step)
        group[victim].process.wait(120)
        for rank in group:
            if everyone:
                rank.kill()  # wherever it is
            elif rank is not group[victim]:
                rank.send("close")
                assert rank.end() == 0
    return log.read_text()


def go_on(tmp_path: Path, library: str, world: int, first: int) -> None:
    restart.claim(tmp_path, 2)
    with ranks(library, *[""] * world) as group:
        for number, rank in enumerate(group):
            rank.ask("open", **options(tmp_path, number, world, attempt=2, keep=9))
        for step in range(first, 50, 10):
            for rank in group:
                rank.ask("submit", step=step)
        for rank in group:
            rank.ask("drain")
            rank.ask("close")


@pytest.fixture
def memory():
    """A folder in memory, where slots are captured into."""
    with tempfile.TemporaryDirectory(dir=MEMORY, prefix="deepfreeze-test-") as folder:
        yield Path(folder)


@pytest.mark.slow
@pytest.mark.parametrize(
    "captured", [pytest.param(False, marks=pytest.mark.full), True], ids=["handed-over", "captured"]
)
def test_every_phase_of_a_killed_job_leaves_only_right_checkpoints(tmp_path, library, memory, captured):
    print(f"seed {SEED} (DEEPFREEZE_TEST_SEED)")
    choose = random.Random(SEED)
    counted: Counter[str] = Counter()
    phases, rounds, parent = (CAPTURED, 1, memory) if captured else (PHASES, 2, tmp_path)
    for number, (phase, everyone) in enumerate((p, e) for p in phases for e in (False, True) for _ in range(rounds)):
        action, call, path, highest, only_first = phases[phase]
        victim = 0 if only_first else choose.randrange(WORLD)
        fault = f"{action}:{call}:{path.format(victim=victim)}:{choose.randint(1, highest)}"
        folder = parent / str(number)
        folder.mkdir()
        line = crash(folder, library, fault, victim, everyone, captured=captured)
        assert line.startswith(f"{action} {call} "), f"seed {SEED}: {fault}"
        counted[phase] += 1
        run = folder / "run"
        before = committed(run)
        assert set(before.values()) <= {1}
        restart.reopen(folder, WORLD)
        assert not restart.leftovers(run)
        after = committed(run)
        assert before.items() <= after.items() and set(after.values()) <= {1}, f"seed {SEED}: {fault}"
        # The restarted job comes to some of the same steps again, with other bytes and another world size.
        first = max(after, default=0) + 10 if choose.random() < 0.7 else 10
        go_on(folder, library, choose.choice((1, 2, 3)), first)
        last = committed(run)
        again = set(range(first, 50, 10))
        assert {step for step, attempt in last.items() if attempt == 2} == again, f"seed {SEED}: {fault}"
        assert set(last) == set(after) | again, f"seed {SEED}: {fault}"
    print("rounds by phase:", dict(counted))
    assert all(counted[phase] == 2 * rounds for phase in phases)


@pytest.mark.parametrize("captured", [False, True], ids=["handed-over", "captured"])
def test_a_job_killed_with_whole_slots_loses_nothing(tmp_path, library, memory, captured):
    tmp_path = memory if captured else tmp_path
    # Both ranks die with their shard on the local tier and nothing of it on the external store that counts.
    restart.make_run(tmp_path / "run")
    with ranks(library, *["kill-before:rename:.record:1"] * WORLD) as group:
        for number, rank in enumerate(group):
            rank.send("open", **options(tmp_path, number, WORLD, captured=captured))
            rank.send("submit", step=10)
            rank.send("wait", step=10, level=vb.LOCAL)
        for rank in group:
            rank.process.wait(120)
    assert not committed(tmp_path / "run")
    restart.reopen(tmp_path, WORLD)
    assert committed(tmp_path / "run") == {10: 1}


def test_a_slot_with_a_flipped_bit_is_never_committed(tmp_path, library):
    restart.make_run(tmp_path / "run")
    with ranks(library, "kill-before:rename:.record:1") as (rank,):
        rank.send("open", **options(tmp_path)).send("submit", step=10)
        rank.process.wait(120)
    (slot,) = slots(tmp_path)
    data = bytearray(slot.read_bytes())
    data[-1000] ^= 4
    slot.write_bytes(data)
    restart.reopen(tmp_path, 1)
    assert not committed(tmp_path / "run") and not slots(tmp_path)


def test_a_model_file_that_lost_bytes_is_not_committed_at_the_next_start(tmp_path, library):
    restart.make_run(tmp_path / "run")
    with ranks(library, "kill-before:rename:manifest.json:1") as (rank,):
        rank.send("open", **options(tmp_path)).send("submit", step=10)
        rank.process.wait(120)
    (model,) = (tmp_path / "run").glob("*.partial-*/model.weights.h5")
    with model.open("r+b") as file:
        file.seek(500_000)
        file.write(bytes(4096))
    ((step, _, reason),) = restart.reopen(tmp_path, 1).lost
    assert step == 10 and "model.weights.h5" in reason
    assert not committed(tmp_path / "run") and not restart.leftovers(tmp_path / "run")


def test_a_dead_attempt_never_replaces_a_committed_checkpoint(tmp_path, library):
    restart.make_run(tmp_path / "run")
    with ranks(library, "kill-before:rename:manifest.json:1") as (rank,):
        rank.send("open", **options(tmp_path)).send("submit", step=10)
        rank.process.wait(120)
    go_on(tmp_path, library, 1, 10)
    for _ in range(2):
        try:
            vb.commit(tmp_path / "run", 10, content.attempt_id(1))
        except vb.EngineFault as fault:
            assert fault.code == vb.INVALID and "committed by attempt" in fault.message
        else:
            raise AssertionError("the commit was not refused")
    restart.reopen(tmp_path, 1)
    assert not restart.leftovers(tmp_path / "run")
    assert committed(tmp_path / "run")[10] == 2
