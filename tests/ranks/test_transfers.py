"""Several checkpoints on their way to the external store at once, on rank processes: the newest complete one wins."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import veloc_bindings as vb
from tests.support import processes
from tests.support.ranks import committed, options, ranks
from tests.support.seed import SEED

pytestmark = pytest.mark.usefixtures("library")

AT_ONCE = {"transfers": 3, "uncommitted": 3, "in_flight": 3, "slots": 3}


def test_every_interleaving_keeps_the_invariants(testing_library):
    """Three checkpoints in each stage at once, each with two writers, a write that fails, and checkpoints that are given up
    (native/testing/level_state_test.cc). The engine's own table is walked."""
    processes.run([Path(testing_library).with_name("level_state_test")], check=True, timeout=300)


@pytest.mark.full
def test_any_order_of_events_leaves_the_checkpoints_that_were_committed(testing_library):
    """Ranks whose calls take any time, and steps that are given up (native/testing/transfers_test.cc)."""
    processes.run([Path(testing_library).with_name("transfers_test")], check=True, timeout=300)


@pytest.mark.full
def test_any_tuning_at_any_time_loses_nothing(testing_library):
    """Ranks that are tuned anew before each step, each by itself, while their calls take any time (native/testing/tuning_test.cc)."""
    processes.run([Path(testing_library).with_name("tuning_test")], check=True, timeout=300)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("local", "slow"),
    [
        (True, "pwrite"),
        *(pytest.param(*one, marks=pytest.mark.full) for one in [(False, "pwrite"), (True, "fdatasync")]),
    ],
)
def test_an_older_checkpoint_that_finishes_later_never_replaces_a_newer_one(tmp_path, library, local, slow):
    """It is committed beside the newer one, and the newer one stays the newest."""
    run = tmp_path / "run"
    with ranks(library, "", f"delay=1500:{slow}:step-0000000010.:1") as group:
        for rank, process in enumerate(group):
            process.ask("open", **options(tmp_path, rank, 2, local, **AT_ONCE))
        for step in (10, 20, 30):
            for process in group:
                process.ask("submit", step=step)
        group[0].ask("wait", step=30, level=vb.EXTERNAL)
        assert vb.newest(run) == 30 and 10 not in committed(run)
        for process in group:
            process.ask("wait", step=10, level=vb.EXTERNAL)
        assert vb.newest(run) == 30 and list(committed(run)) == [10, 20, 30]
        for process in group:
            process.ask("drain")
            process.ask("close")
    assert list(committed(run)) == [20, 30], "retention keeps two"


@pytest.mark.full
@pytest.mark.slow
def test_a_rank_that_lags_holds_nobody_up_until_memory_is_used_up(tmp_path, library):
    """Four ranks, of which each may be up to three steps behind the others: a rank that is ahead never waits for one that is behind. One
    step further it does, and the message names the rank that is waited for."""
    world, most, last = 4, 4, 24
    choose = random.Random(SEED)
    print(f"seed {SEED} (DEEPFREEZE_TEST_SEED)")
    with ranks(library, *[""] * world) as group:
        for rank, process in enumerate(group):
            own = options(tmp_path, rank, world, False, in_flight=most, uncommitted=most, transfers=2, keep=99)
            process.ask("open", **own)
        done = [0] * world
        while min(done) < last:
            rank = choose.choice([rank for rank in range(world) if done[rank] < min(last, min(done) + most - 1)])
            # Nobody else submits meanwhile: what waited for another rank would wait for ever.
            group[rank].ask("submit", step=10 * (done[rank] + 1))
            done[rank] += 1
        late = choose.randrange(world)
        others = [process for rank, process in enumerate(group) if rank != late]
        for number in range(last + 1, last + 1 + most):
            for process in others:
                process.ask("submit", step=10 * number)
        for process in others:
            # Ranks other than 0 look seldom for anybody but rank 0.
            with pytest.raises(vb.EngineFault, match=f"rank {late}|rank 0 has not committed it") as caught:
                process.ask("submit", step=10 * (last + 1 + most), timeout=1)
            assert f"rank {late}" in caught.value.message or process is not group[0]
            assert caught.value.code == vb.TIMEOUT
        for number in range(last + 1, last + 1 + most):
            group[late].ask("submit", step=10 * number)
        for process in group:
            process.ask("drain")
    assert list(committed(tmp_path / "run")) == [10 * number for number in range(1, last + 1 + most)]
