"""SIGKILL from outside, of any ranks at any moment of a job that saves all the time; and SIGSTOP, for longer than is waited."""

from __future__ import annotations

import os
import random
import signal
import tempfile
import time
from collections import Counter
from pathlib import Path

import pytest

import veloc_bindings as vb
from tests.support import restart
from tests.support.ranks import Rank, committed, options, ranks, until
from tests.support.seed import SEED

pytestmark = pytest.mark.crash
ROUNDS = int(os.environ.get("DEEPFREEZE_TEST_ROUNDS", "12"))
MANY_ROUNDS = 60
MEMORY = "/dev/shm"
SIZE = 1_000_003
FIRST, MANY = 100_000, 10_000  # the first step, and how many: no round lives to see the last
KEEP = 3


def said(there: Path, world: int) -> list[dict[str, set[int]]]:
    """What the engine of each rank had reported when it died: steps by level."""
    levels = []
    for rank in range(world):
        log = there / f"said-{rank}"
        found: dict[str, set[int]] = {"local": set(), "external": set(), "failed": set(), "notice": set()}
        for line in log.read_text().splitlines() if log.exists() else []:
            level, step = line.split()[:2]
            found.setdefault(level, set()).add(int(step))
        levels.append(found)
    return levels


def start(group: list[Rank], there: Path, captured: bool) -> None:
    """Every rank has opened its engine when this returns, and submits one step after the other from then on."""
    world = len(group)
    for number, rank in enumerate(group):
        own = options(
            there, number, world, captured=captured, first=FIRST, file_size=SIZE, keep=KEEP, in_flight=3, slots=3
        )
        rank.ask("open", **own)
    for number, rank in enumerate(group):
        rank.send("stream", first=FIRST, last=FIRST + MANY, log=str(there / f"said-{number}"))


def some_checkpoints_take(there: Path, library: str, world: int, captured: bool) -> float:
    """Seconds from the start to the fifth commit, the first of which makes everything."""
    restart.make_run(there / "run")
    with ranks(library, *[""] * world) as group:
        start(group, there, captured)
        begun = time.monotonic()
        while max(restart.steps_in(there / "run"), default=0) < FIRST + 4:
            assert time.monotonic() - begun < 60
            time.sleep(0.002)
        return time.monotonic() - begun


def kill_at_random(there: Path, library: str, world: int, captured: bool, choose: random.Random, span: float) -> str:
    """A job that is killed: a random subset at a random moment, then what is left, as a launcher does it. Says how."""
    victims = choose.sample(range(world), choose.randint(1, world))
    after, others_after = choose.uniform(0, span), choose.choice((0, choose.uniform(0, span / 2)))
    restart.make_run(there / "run")
    with ranks(library, *[""] * world) as group:
        start(group, there, captured)
        time.sleep(after)
        for victim in victims:
            group[victim].kill()
        time.sleep(others_after)
        for rank in group:
            assert rank.process.poll() in (None, -signal.SIGKILL)
            rank.kill()
        for rank in group:
            rank.process.wait(60)
    return f"ranks {victims} of {world} after {after:.4f} s, the others {others_after:.4f} s later, captured={captured}"


def check(there: Path, library: str, world: int, choose: random.Random) -> dict[str, int]:
    """What was promised is there, what is there is right, and a job of another size goes on. Counts what there was."""
    run, levels = there / "run", said(there, world)
    assert not any(found["failed"] | found["notice"] | found.get("refused", set()) for found in levels), levels
    before = committed(run)
    external = max((max(found["external"], default=0) for found in levels), default=0)
    assert max(before, default=0) >= external, f"step {external} was reported external"
    finished = restart.reopen(there, world)
    assert not finished.lost
    after = committed(run)
    assert before.items() <= after.items(), f"lost {before.keys() - after.keys()} in the recovery"
    assert set(after.values()) <= {1}
    local = set.intersection(*(found["local"] | found["external"] for found in levels))
    owed = {step for step in local if step > max(before, default=0)}
    assert owed <= after.keys(), f"{sorted(owed - after.keys())} were on the local tier of all ranks"
    assert not restart.leftovers(run), restart.leftovers(run)
    # A new job, of another size, goes on from the newest; half of the time it comes by steps that the dead one had begun.
    newest = max(after, default=FIRST)
    steps = (newest + 1, newest + choose.choice((2, MANY)))
    restart.go_on(there, steps, SIZE, KEEP, choose.choice([size for size in (1, 2, 3) if size != world]))
    last = committed(run)
    assert tuple(last)[-2:] == steps and [last[step] for step in steps] == [9, 9]
    return {"finished from local slots or records": len(finished.committed), "owed at the local level": len(owed)}


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [ROUNDS, pytest.param(max(MANY_ROUNDS, ROUNDS), marks=pytest.mark.full)])
def test_ranks_killed_at_any_moment_lose_nothing_that_was_promised(tmp_path, library, rounds, record_property):
    choose = random.Random(SEED)
    phases: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    spans: dict[tuple[int, bool], float] = {}
    for number in range(rounds):
        world, captured = choose.choice((1, 2, 3)), choose.random() < 0.5
        with tempfile.TemporaryDirectory(dir=MEMORY if captured else tmp_path, prefix="deepfreeze-test-") as folder:
            if (world, captured) not in spans:
                (there := Path(folder) / "first").mkdir()
                spans[world, captured] = some_checkpoints_take(there, library, world, captured)
            (there := Path(folder) / "round").mkdir()
            how = kill_at_random(there, library, world, captured, choose, spans[world, captured])
            phases[restart.phase(there / "run")] += 1
            try:
                counts.update(check(there, library, world, choose))
            except Exception as error:
                raise AssertionError(f"seed {SEED}, round {number}, {how}: {error}") from error
    record_property(
        "points", f"kills at any moment: {rounds} rounds, by phase {dict(phases)}; checkpoints {dict(counts)}"
    )
    # Of few rounds all may hit the phase that takes longest; it is three rounds in five.
    if rounds >= MANY_ROUNDS:
        assert len(phases) > 1 and counts["finished from local slots or records"], "kills hit more than one phase"


@pytest.mark.timing
@pytest.mark.parametrize("captured", [False, True], ids=["handed-over", "captured"])
@pytest.mark.parametrize("slow", [pytest.param(0, marks=pytest.mark.slow), 1, 2])
def test_a_rank_stopped_beyond_the_bound_is_named_and_the_job_goes_on(library, slow, captured):
    """For those that give up on it, time passes as they look for step 20: rank 0, or both others where rank 0 is the slow one. These list
    the directory once in an eighth of the bound only, so the bound is shorter there."""
    bound, looks = (60, 3) if slow else (16, 1)
    late = f"late={bound}:list:step-0000000020.partial:{looks}+"
    plans = [late if (rank == 0) != (slow == 0) else "" for rank in range(3)]
    with (
        tempfile.TemporaryDirectory(dir=MEMORY, prefix="deepfreeze-test-") as folder,
        ranks(library, *plans) as group,
    ):
        there = Path(folder)
        for number, rank in enumerate(group):
            rank.ask("open", **options(there, number, 3, captured=captured, commit_timeout=float(bound), keep=5))
            rank.ask("submit", step=10)
        for rank in group:
            rank.ask("drain")
        os.kill(group[slow].process.pid, signal.SIGSTOP)
        others = [number for number in (2, 1, 0) if number != slow]
        for number in others:  # rank 0 last: it misses no record but the slow one's
            group[number].ask("submit", step=20)
            if number != 0:
                until(lambda n=number: list((there / "run").glob(f"step-0000000020.partial-*/rank-{n:05d}.record")))
        for number in others:
            with pytest.raises(vb.EngineFault, match=rf"step-0000000020: .*rank {slow}\b") as caught:
                group[number].ask("wait", step=20, level=vb.EXTERNAL)
            assert caught.value.code in (vb.INCOMPLETE, vb.TIMEOUT)
        os.kill(group[slow].process.pid, signal.SIGCONT)
        # The one that was slow hands over the step that the others have given up on. If it was rank 0, all parts are there
        # now, and it commits them: late, but whole. Else rank 0 has failed the step for all.
        group[slow].ask("submit", step=20)
        if slow == 0:
            group[0].ask("wait", step=20, level=vb.EXTERNAL)
        else:
            with pytest.raises(
                vb.EngineFault, match=rf"step-0000000020: rank 0 failed: .*rank {slow}'s record is missing"
            ):
                group[slow].ask("wait", step=20, level=vb.EXTERNAL)
        for rank in group:
            rank.ask("submit", step=30)
        for rank in group:
            rank.ask("wait", step=30, level=vb.EXTERNAL)
        assert list(committed(there / "run")) == ([10, 20, 30] if slow == 0 else [10, 30])


@pytest.mark.timing
def test_a_rank_whose_own_sync_comes_after_the_commit_has_not_failed(tmp_path, library):
    # Its record has its name, so rank 0 may commit, and rename the directory, before this rank has synced it.
    with ranks(library, "", "delay=500:fsync_dir:step-0000000010.partial:1") as group:
        for number, rank in enumerate(group):
            rank.ask("open", **options(tmp_path, number, 2))
            rank.ask("submit", step=10)
        for rank in group:
            rank.ask("wait", step=10, level=vb.EXTERNAL)
    assert os.listdir(tmp_path / "run") == ["step-0000000010"]
