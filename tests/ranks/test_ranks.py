"""The engine on rank processes: what ranks write together, and the bounds of memory, backlog and time."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path

import pytest

import veloc_bindings as vb
from tests.support import content, processes
from tests.support.ranks import committed, options, ranks, slots, until

pytestmark = pytest.mark.usefixtures("library")


@pytest.mark.parametrize("world", [1, 2, 3])
def test_file_equals_the_source_for_all_sizes_and_worlds(tmp_path, library, world):
    with ranks(library, *[""] * world) as group:
        sizes = [(1, True), (4095, False), (3 * 4096 + 1, True), (262144, False), (1_000_003, True)]
        for attempt, (size, local) in enumerate(sizes, start=1):
            folder = tmp_path / str(attempt)
            folder.mkdir()
            for rank, process in enumerate(group):
                # A mixed job: one rank may have a local tier where another has none.
                own = options(folder, rank, world, local and rank != 1, attempt=attempt, file_size=size)
                process.send("open", **own).send("submit", step=40).send("submit", step=80).send("drain").send("close")
            for process in group:
                for _ in range(5):
                    process.answer()
            assert committed(folder / "run") == {40: attempt, 80: attempt}
            assert not slots(folder)


def test_slots_are_recycled(tmp_path, library):
    with ranks(library, "") as (rank,):
        rank.ask("open", **options(tmp_path, slots=1))
        seen = set()
        for step in (10, 20, 30):
            rank.ask("submit", step=step)
            rank.ask("drain")
            (slot,) = slots(tmp_path)
            seen.add((slot.stat().st_ino, slot.stat().st_blocks, slot.stat().st_size))
            assert vb.slot_inspect(slot).step == step
        assert len(seen) == 1
        rank.ask("close")
        assert not slots(tmp_path)


@pytest.mark.parametrize(
    "fault", ["fail=ENOSPC:fallocate:.slot:2+", "fail=ENOSPC:pwrite:.slot:30+", "fail=EIO:pwrite:.slot:3"]
)
def test_full_or_broken_local_tier_is_passed_by_with_one_notice(tmp_path, library, fault):
    # The first commit is late, or its slot would be free again before a second one is made.
    with ranks(library, f"{fault},delay=300:rename:manifest.json:1") as (rank,):
        rank.ask("open", **options(tmp_path, keep=4))
        for step in (10, 20, 30, 40):
            rank.ask("submit", step=step)
        rank.ask("drain")
        notices = [report["message"] for report in rank.ask("poll") if report["step"] == -1]
        assert len(notices) == 1 and "local tier" in notices[0] and ".slot" in notices[0]
        assert list(committed(tmp_path / "run")) == [10, 20, 30, 40]
        rank.ask("close")
        assert not slots(tmp_path)


@pytest.mark.timing
def test_submit_waits_for_in_flight_and_goes_on_when_memory_is_free(tmp_path, library):
    with ranks(library, "", "") as (first, second):
        # Rank 1 is not there yet: step 10 keeps the only slot, so step 20 stays in memory.
        first.ask("open", **options(tmp_path, 0, 2, in_flight=1, slots=1))
        first.ask("submit", step=10)
        first.ask("submit", step=20)
        with pytest.raises(vb.EngineFault, match=r"step 30.*step 20 waits for a free slot") as caught:
            first.ask("submit", step=30, timeout=0.05)
        assert caught.value.code == vb.TIMEOUT
        said = ""
        while "rank 1's record is missing" not in said:  # before, step 10 is still being written
            with pytest.raises(vb.EngineFault) as caught:
                first.ask("drain", timeout=0.05)
            said = str(caught.value)
            assert caught.value.code == vb.TIMEOUT and "step 10" in said
        second.ask("open", **options(tmp_path, 1, 2))
        first.send("submit", step=30)
        for step in (10, 20, 30):
            second.ask("submit", step=step)
        first.answer()
        for rank in (first, second):
            rank.ask("drain")
        assert list(committed(tmp_path / "run")) == [20, 30]


@pytest.mark.timing
def test_wanted_memory_is_given_back_and_the_slot_is_read_instead(tmp_path, library):
    with ranks(library, "delay=100:pwrite:model.weights.h5:1+") as (rank,):
        rank.ask("open", **options(tmp_path, in_flight=1, writers=1))
        rank.ask("submit", step=10)
        rank.ask("submit", step=20)  # returns because the memory of step 10 is given back
        (report,) = [r for r in rank.ask("poll") if r["step"] == 10]
        assert report["released"] and report["level"] == vb.LOCAL and report["written_s"] == -1
        rank.ask("scribble", step=10)
        rank.ask("drain")
        assert list(committed(tmp_path / "run")) == [10, 20]


@pytest.mark.timing
def test_commit_that_waited_too_long_names_the_missing_rank(tmp_path, library):
    with ranks(library, "", "") as (first, third):
        third.ask("open", **options(tmp_path, 2, 3, False))
        third.ask("submit", step=40)
        third.ask("wait", step=40, level=vb.LOCAL)
        first.ask("open", **options(tmp_path, 0, 3, commit_timeout=0.2))
        first.ask("submit", step=40)
        missing = r"step-0000000040: rank 1's record is missing \(2 of 3 present\) after 200 ms"
        with pytest.raises(vb.EngineFault, match=missing) as caught:
            first.ask("wait", step=40, level=vb.EXTERNAL)
        assert caught.value.code == vb.INCOMPLETE
        with pytest.raises(vb.EngineFault, match="rank 0 failed: .*" + missing):
            third.ask("wait", step=40, level=vb.EXTERNAL)
        assert not committed(tmp_path / "run")


# A store on which each write takes a tenth of the bound, and all of a rank's together more than twice the bound.
SLOW = {"file_size": 400_000, "chunk_bytes": 8192, "writers": 1, "commit_timeout": 2.0}
SLOW_WRITES = "delay=200:pwrite:model.weights.h5:1+"


@pytest.mark.full
@pytest.mark.timing
@pytest.mark.parametrize("local", [True, False], ids=["local-tier", "store-alone"])
def test_a_slow_rank_is_waited_for_while_its_bytes_move(tmp_path, library, local):
    """A rank that writes for longer than the bound is waited for as long as its bytes move."""
    with ranks(library, "", SLOW_WRITES, "") as group:
        for number, rank in enumerate(group):
            rank.ask("open", **options(tmp_path, number, 3, local, **SLOW))
        for step in (10, 20):
            for rank in group:
                rank.send("submit", step=step).answer()
        begin = time.monotonic()
        for rank in group:
            for step in (10, 20):
                rank.ask("wait", step=step, level=vb.EXTERNAL)
        assert time.monotonic() - begin > 2 * SLOW["commit_timeout"], "this test shows nothing"
        assert list(committed(tmp_path / "run")) == [10, 20]


@pytest.mark.full
@pytest.mark.timing
@pytest.mark.parametrize("hangs", ["delay=900000", "sigstop"], ids=["store", "process"])
def test_a_rank_that_hangs_is_waited_for_until_the_bound_and_named(tmp_path, library, hangs):
    """A rank that hangs half-way is waited for until the bound, and named."""
    bound = {"commit_timeout": 6.0}  # of which its bytes move for a quarter
    with ranks(library, "", f"{SLOW_WRITES},{hangs}:pwrite:model.weights.h5:8") as group:
        for number, rank in enumerate(group):
            rank.ask("open", **options(tmp_path, number, 2, **SLOW | bound))
        for rank in group:
            rank.ask("submit", step=10)
        missing = r"step-0000000010: rank 1's record is missing \(1 of 2 present\) after 6 s"
        with pytest.raises(vb.EngineFault, match=missing):
            group[0].ask("wait", step=10, level=vb.EXTERNAL)
        (partial,) = (tmp_path / "run").glob("step-0000000010.partial-*")
        assert [path.name[:10] for path in partial.glob("*.alive")] == ["rank-00001"], "its bytes moved before"
        assert not committed(tmp_path / "run")


def test_a_step_that_is_written_soon_shows_no_heartbeat(tmp_path, library):
    with ranks(library, "kill-before:open:.alive:1", "kill-before:open:.alive:1") as group:
        for number, rank in enumerate(group):
            rank.ask("open", **options(tmp_path, number, 2, commit_timeout=600.0))
            rank.ask("submit", step=10)
        for rank in group:
            rank.ask("wait", step=10, level=vb.EXTERNAL)


def test_a_rank_that_fails_fails_that_step_everywhere_at_once(tmp_path, library):
    """A rank that fails makes that step fail on all ranks at once, and no other step."""
    with ranks(library, "", "fail=EIO:fdatasync:model.weights.h5:1") as group:
        for number, rank in enumerate(group):
            rank.ask("open", **options(tmp_path, number, 2))
            rank.ask("submit", step=10)
        with pytest.raises(vb.EngineFault, match=r"rank 1 failed: fdatasync .*model\.weights\.h5: "):
            group[0].ask("wait", step=10, level=vb.EXTERNAL)
        with pytest.raises(vb.EngineFault, match="fdatasync") as caught:
            group[1].ask("wait", step=10, level=vb.EXTERNAL)
        assert caught.value.code == vb.IO
        for rank in group:
            rank.ask("submit", step=20)
        for rank in group:
            rank.ask("drain")
        assert list(committed(tmp_path / "run")) == [20]
        # The failed step's partial directory went when the newer one was committed.
        assert [path.name for path in (tmp_path / "run").iterdir()] == ["step-0000000020"]


@pytest.mark.parametrize("failing", [(10,), (10, 20)], ids=["one", "several"])
def test_rank_that_looks_late_learns_of_every_step_that_failed_meanwhile(tmp_path, library, failing):
    # Rank 2's first look at step 10 ends when rank 0 has failed those steps, committed the next and cleared up after them.
    late = "delay=1500:open:step-0000000010/manifest.json:1"
    faults = ",".join(f"fail=EIO:fdatasync:model.weights.h5:{n + 1}" for n in range(len(failing)))
    following = failing[-1] + 10
    with ranks(library, "", faults, late) as group:
        for number, rank in reversed(list(enumerate(group))):
            rank.ask("open", **options(tmp_path, number, 3, keep=1, in_flight=3, slots=3))
            for step in (*failing, following):
                rank.ask("submit", step=step)
        group[0].ask("wait", step=following, level=vb.EXTERNAL)
        for rank in (group[0], group[2]):
            for step in failing:
                with pytest.raises(vb.EngineFault, match=rf"step-00000000{step}: rank 1 failed: fdatasync") as caught:
                    rank.ask("wait", step=step, level=vb.EXTERNAL)
                assert caught.value.code == vb.INCOMPLETE
        for rank in group:
            rank.ask("drain")
            rank.ask("submit", step=following + 10)
        for rank in group:
            rank.ask("drain")
        # All ranks know by now, so the failed steps' directories are gone.
        assert [path.name for path in (tmp_path / "run").iterdir()] == [f"step-00000000{following + 10}"]


# Rank 0 fails to write step 10, and the store has no room for the reason. Later steps have room again.
NO_ROOM_FOR_THE_REASON = "fail=ENOSPC:pwrite:step-0000000010.:1+"
BACKLOG = {"keep": 1, "in_flight": 3, "slots": 3}


def test_a_step_failed_on_a_full_store_is_known_by_a_name_alone(tmp_path, library):
    """The other rank learns that a step has failed, though the store had no room to say why."""
    with ranks(library, NO_ROOM_FOR_THE_REASON, "") as group:
        for number, rank in enumerate(group):
            rank.ask("open", **options(tmp_path, number, 2, **BACKLOG))
            rank.ask("submit", step=10)
        with pytest.raises(
            vb.EngineFault, match=r"step-0000000010: rank 0 failed: the reason could not be written"
        ) as caught:
            group[1].ask("wait", step=10, level=vb.EXTERNAL)
        assert caught.value.code == vb.INCOMPLETE
        for rank in group:
            rank.ask("submit", step=20)
        for rank in group:
            rank.ask("wait", step=20, level=vb.EXTERNAL)


def test_a_rank_that_looks_late_at_a_name_alone_takes_the_step_for_replaced(tmp_path, library):
    """A step failed without a reason, seen after a newer commit, is superseded and not committed."""
    with ranks(library, NO_ROOM_FOR_THE_REASON, "") as group:
        for number, rank in enumerate(group):
            rank.ask("open", **options(tmp_path, number, 2, **BACKLOG))
        for step in (10, 20):
            group[1].ask("submit", step=step)
        until(lambda: list((tmp_path / "run").glob("step-0000000020.partial-*/rank-00001.record")))
        group[1].process.send_signal(signal.SIGSTOP)  # rank 1 looks at step 10 only after the commit of step 20
        for step in (10, 20):
            group[0].ask("submit", step=step)
        group[0].ask("wait", step=20, level=vb.EXTERNAL)
        group[1].process.send_signal(signal.SIGCONT)
        with pytest.raises(vb.EngineFault, match=r"superseded by step 20") as caught:
            group[1].ask("wait", step=10, level=vb.EXTERNAL)
        assert caught.value.code == vb.SUPERSEDED
        group[1].ask("wait", step=20, level=vb.EXTERNAL)


def test_a_step_failed_on_a_full_store_counts_as_committed_for_no_rank(tmp_path, library):
    """A step that failed counts as committed for no rank, though the store had no room for the name of the failure either."""
    nothing = NO_ROOM_FOR_THE_REASON + ",fail=ENOSPC:open:step-0000000010.failed:1+"
    over = "late=60:mkdir:step-0000000030.partial:1"  # with step 30 rank 1's bound is over
    with ranks(library, nothing, over) as group:
        for number, rank in enumerate(group):
            rank.ask("open", **options(tmp_path, number, 2, commit_timeout=60.0, **BACKLOG))
            for step in (10, 20):
                rank.ask("submit", step=step)
        group[0].ask("wait", step=20, level=vb.EXTERNAL)
        group[1].ask("submit", step=30)
        with pytest.raises(
            vb.EngineFault, match=r"step-0000000010: rank 0's record is missing .* after 60 s"
        ) as caught:
            group[1].ask("wait", step=10, level=vb.EXTERNAL)
        assert caught.value.code == vb.INCOMPLETE
        group[1].ask("wait", step=20, level=vb.EXTERNAL)


def test_retention_keeps_the_newest(tmp_path, library):
    with ranks(library, "", "") as group:
        for number, rank in enumerate(group):
            rank.ask("open", **options(tmp_path, number, 2, keep=2))
        for step in range(10, 70, 10):
            for rank in group:
                rank.ask("submit", step=step)
        for rank in group:
            rank.ask("drain")
            last = {r["step"]: r["level"] for r in rank.ask("poll")}
            assert last == dict.fromkeys(range(10, 70, 10), vb.EXTERNAL)
        names = sorted(path.name for path in (tmp_path / "run").iterdir())
        assert names == ["step-0000000050", "step-0000000060"]
        assert list(committed(tmp_path / "run")) == [50, 60]


def test_retention_that_fails_becomes_one_notice(tmp_path, library):
    with ranks(library, "fail=EACCES:rename:.trash-:1+") as (rank,):
        rank.ask("open", **options(tmp_path, keep=1))
        for step in (10, 20, 30):
            rank.ask("submit", step=step)
            rank.ask("drain")
        notices = [r["message"] for r in rank.ask("poll") if r["step"] == -1]
        assert any("could not be removed" in notice for notice in notices)
        assert list(committed(tmp_path / "run")) == [10, 20, 30]


def test_one_directory_that_can_not_be_removed_does_not_keep_the_others(tmp_path, library):
    # As on NFS while a reader holds one of its files open.
    with ranks(library, "fail=EIO:rmdir:.trash-step-0000000010:1+") as (rank,):
        rank.ask("open", **options(tmp_path, keep=1))
        for step in (10, 20, 30, 40):
            rank.ask("submit", step=step)
            rank.ask("drain")
    names = sorted(path.name.rsplit("-", 1)[0] for path in (tmp_path / "run").iterdir())
    assert names == [".trash-step-0000000010", "step"]
    assert list(committed(tmp_path / "run")) == [40]


@pytest.mark.parametrize("world", [1, 2])
def test_step_that_failed_on_a_full_store_gives_its_room_to_the_next(tmp_path, library, world):
    full = "fail=ENOSPC:pwrite:step-00000000{}.partial:3"
    with ranks(library, f"{full.format(10)},{full.format(20)}", *[""] * (world - 1)) as group:
        for number, rank in enumerate(group):
            rank.ask("open", **options(tmp_path, number, world))
            rank.ask("submit", step=10)
        for rank in group:  # then each has said that it knows
            with pytest.raises(vb.EngineFault, match=r"No space left on device"):
                rank.ask("wait", step=10, level=vb.EXTERNAL)
        for rank in group:
            rank.ask("submit", step=20)
        for rank in group:
            rank.ask("drain")
        assert [path.name for path in (tmp_path / "run").iterdir()] == ["step-0000000020"]
        assert list(committed(tmp_path / "run")) == [20]


@pytest.mark.slow
@pytest.mark.timing
def test_removals_that_take_long_are_waited_for_only_by_who_needs_room(testing_library):
    """Removals that take long are waited for by a step that finds the store full, and not by the end (native/testing/retention_test.cc)."""
    processes.run([Path(testing_library).with_name("retention_test")], check=True, timeout=300)


def test_an_attempt_whose_run_was_taken_commits_and_removes_nothing(tmp_path, library):
    other = content.attempt_id(7).hex()
    with ranks(library, "") as (rank,):
        rank.ask("open", **options(tmp_path, keep=1))
        for owner, step in ((None, 10), (content.attempt_id(1).hex(), 20)):
            if owner is not None:
                (tmp_path / "run" / "owner").write_text(owner + "\n")
            rank.ask("submit", step=step)
            rank.ask("drain")
        assert list(committed(tmp_path / "run")) == [20]
        (tmp_path / "run" / "owner").write_text(other + "\n")
        for step in (30, 40):
            rank.ask("submit", step=step)
            with pytest.raises(vb.EngineFault, match=f"attempt {other} has taken the run from this job") as caught:
                rank.ask("wait", step=step, level=vb.EXTERNAL)
            assert caught.value.code == vb.TAKEN
        assert list(committed(tmp_path / "run")) == [20]


def test_an_attempt_whose_run_is_taken_in_retention_removes_no_more(tmp_path, library):
    """An attempt whose run is taken while it removes old checkpoints removes no more."""
    # Between the commit of step 20 and what follows it somebody else begins.
    other, stopped = content.attempt_id(7).hex(), tmp_path / "stopped"
    with ranks(library, "sigstop:open:run/owner:4", log=str(stopped)) as (rank,):
        rank.ask("open", **options(tmp_path, keep=1))
        (tmp_path / "run" / "owner").write_text(content.attempt_id(1).hex() + "\n")
        rank.ask("submit", step=10)
        rank.ask("drain")
        rank.send("submit", step=20)
        until(stopped.exists)
        (tmp_path / "run" / "owner").write_text(other + "\n")
        os.kill(rank.process.pid, signal.SIGCONT)
        rank.answer()
        rank.ask("drain")
        notices = [report["message"] for report in rank.ask("poll") if report["step"] == -1]
        assert (
            len(notices) == 1 and f"could not be removed ({tmp_path / 'run'}: attempt {other} has taken" in notices[0]
        )
        assert list(committed(tmp_path / "run")) == [10, 20]


@pytest.mark.parametrize(
    ("owner", "fault", "why"),
    [
        ("", "fail=EACCES:open:run/owner:1", "run/owner: Permission denied"),
        ("", "fail=EACCES:pread:run/owner:1", "run/owner: Permission denied"),
        ("short", "", "run/owner: expected an attempt's id and a newline; found 5 other bytes"),
        ("x" * 34, "", "run/owner: expected at most 33 bytes; found 34 bytes"),
    ],
    ids=["not-opened", "not-read", "too-short", "too-long"],
)
def test_a_look_for_the_runs_owner_that_fails_is_no_consent(tmp_path, library, owner, fault, why):
    with ranks(library, fault) as (rank,):
        rank.ask("open", **options(tmp_path))
        own = content.attempt_id(1).hex() + "\n"
        (tmp_path / "run" / "owner").write_text(owner or own)
        rank.ask("submit", step=10)
        with pytest.raises(vb.EngineFault, match=why):
            rank.ask("wait", step=10, level=vb.EXTERNAL)
        assert not committed(tmp_path / "run")
        (tmp_path / "run" / "owner").write_text(own)
        rank.ask("submit", step=20)
        rank.ask("drain")
        assert list(committed(tmp_path / "run")) == [20]


def test_another_attempt_replaces_the_same_step_whole(tmp_path, library):
    for attempt, world in ((1, 2), (2, 1), (3, 3)):
        with ranks(library, *[""] * world) as group:
            for number, rank in enumerate(group):
                rank.ask("open", **options(tmp_path, number, world, attempt=attempt))
                rank.ask("submit", step=40)
            for rank in group:
                rank.ask("drain")
        assert committed(tmp_path / "run") == {40: attempt}


def test_close_returns_threads_and_descriptors_and_keeps_uncommitted_slots(tmp_path, library):
    with ranks(library, "") as (rank,):
        rank.ask("open", **options(tmp_path, attempt=9))
        rank.ask("close")
        before = rank.ask("counts")
        rank.ask("open", **options(tmp_path, 0, 2))  # rank 1 never comes
        rank.ask("submit", step=10)
        rank.ask("wait", step=10, level=vb.LOCAL)
        rank.ask("submit", step=20)
        rank.ask("wait", step=20, level=vb.LOCAL)
        rank.ask("submit", step=30)
        rank.ask("close")
        assert rank.ask("counts") == before
        assert [vb.slot_inspect(slot).step for slot in slots(tmp_path)] == [10, 20]


@pytest.mark.parametrize("captured", [False, True], ids=["handed-over", "captured"])
def test_an_old_attempt_that_closes_late_leaves_the_next_ones_slots_alone(library, captured):
    memory = tempfile.TemporaryDirectory(dir="/dev/shm", prefix="deepfreeze-test-")
    with memory as place, ranks(library, "", "") as (old, new):
        tmp_path = Path(place)
        old.ask("open", **options(tmp_path, attempt=1, captured=captured))
        old.ask("submit", step=10)
        old.ask("drain")
        new.ask("open", **options(tmp_path, 0, 2, attempt=2, captured=captured, slots=1))  # rank 1 never comes
        new.ask("submit", step=20)
        new.ask("wait", step=20, level=vb.LOCAL)
        old.ask("submit", step=30)
        old.ask("drain")
        old.ask("close")
        new.kill()
        new.end()
        (left,) = slots(tmp_path)
        found = vb.slot_inspect(left)
        assert (found.step, found.attempt) == (20, content.attempt_id(2))


def test_failed_checkpoint_gives_its_slot_to_a_newer_one(tmp_path, library):
    with ranks(library, "fail=EIO:fdatasync:model.weights.h5:1") as (rank,):
        rank.ask("open", **options(tmp_path, slots=1))
        rank.ask("submit", step=10)
        with pytest.raises(vb.EngineFault, match="fdatasync"):
            rank.ask("wait", step=10, level=vb.EXTERNAL)
        rank.ask("submit", step=20)
        rank.ask("wait", step=20, level=vb.EXTERNAL)
        assert list(committed(tmp_path / "run")) == [20]


@pytest.mark.parametrize(
    ("call", "survives"),
    [
        ("pwrite:.slot", True),  # goes on without the local tier
        ("pwrite:model.weights.h5", False),
        ("open:.record.tmp", False),
        ("list:.partial-", False),
        ("open:step-0000000010/manifest.json", True),  # a notice: retention failed
    ],
)
def test_memory_that_runs_out_fails_a_step_and_never_the_process(tmp_path, library, call, survives):
    with ranks(library, f"no-memory:{call}:{1 + survives}") as (rank,):
        rank.ask("open", **options(tmp_path, in_flight=1))
        rank.ask("submit", step=10)
        with nullcontext() if survives else pytest.raises(vb.EngineFault, match=r"could not go on: .*bad_alloc"):
            rank.ask("wait", step=10, level=vb.EXTERNAL)
        rank.ask("submit", step=20)  # the memory of step 10 was given back
        rank.ask("drain")
        assert list(committed(tmp_path / "run")) == ([10, 20] if survives else [20])


def test_short_reads_and_writes_are_continued(tmp_path, library):
    with ranks(library, "short:pwrite::1+,short:pread::1+") as (rank,):
        rank.ask("open", **options(tmp_path, file_size=200_001))
        rank.ask("submit", step=10)
        rank.ask("drain")
        assert list(committed(tmp_path / "run")) == [10]


def test_steps_must_grow_and_unknown_steps_are_refused(tmp_path, library):
    with ranks(library, "") as (rank,):
        rank.ask("open", **options(tmp_path))
        rank.ask("submit", step=10)
        for name, arguments in (("submit", {"step": 10}), ("wait", {"step": 11, "level": vb.LOCAL})):
            with pytest.raises(vb.EngineFault) as caught:
                rank.ask(name, **arguments)
            assert caught.value.code == vb.INVALID
        rank.ask("drain")
        rank.ask("poll")
        rank.ask("wait", step=10, level=vb.EXTERNAL)  # forgotten, but remembered how it ended


@pytest.mark.parametrize("inside", ["", content.RUN_ID.hex()])
def test_other_users_of_the_local_directory_are_refused(tmp_path, library, inside):
    own = options(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "local-0" / f"deepfreeze-{os.geteuid()}" / inside
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(tmp_path / "elsewhere")
    with ranks(library, "") as (rank,):
        rank.ask("open", **own)
        rank.ask("submit", step=10)
        rank.ask("drain")
        assert any("expected a directory of user" in r["message"] for r in rank.ask("poll"))
    assert list(committed(tmp_path / "run")) == [10] and not list((tmp_path / "elsewhere").iterdir())


def test_the_local_tier_is_written_though_all_writers_hang_in_the_store(tmp_path, library):
    """The slot is made only when the transfer's writers hang."""
    delayed = tmp_path / "delayed"
    with ranks(library, "delay=900000:pwrite:model.weights.h5:1+,delay=500:fallocate:.slot:1", log=str(delayed)) as (
        rank,
    ):
        rank.ask("open", **options(tmp_path, writers=2))
        rank.ask("submit", step=1)
        rank.ask("wait", step=1, level=vb.LOCAL)
        assert delayed.read_text().count("model.weights.h5") == 2
        (slot,) = slots(tmp_path)
        assert vb.slot_inspect(slot).step == 1


@pytest.mark.timing
def test_closing_is_bounded_where_the_store_hangs_and_the_process_can_end(tmp_path, library):
    delayed = tmp_path / "delayed"
    with ranks(library, "delay=900000:pwrite:model.weights.h5:1+", log=str(delayed)) as (rank,):
        rank.ask("open", **options(tmp_path, commit_timeout=1.0))
        rank.ask("submit", step=1)
        rank.ask("wait", step=1, level=vb.LOCAL)
        until(delayed.exists)
        with pytest.raises(vb.EngineFault, match="df-transfer in a call to the system that did not return") as caught:
            rank.ask("close")
        assert caught.value.code == vb.TIMEOUT
        assert rank.end() == 0


@pytest.mark.parametrize(
    "fault",
    ["fail=EROFS:open:model.weights.h5:2,fail=EROFS:open:model.weights.h5:5", "short:pwrite:model.weights.h5:1+"],
    ids=["not-to-be-had", "given-up"],
)
def test_writes_that_do_not_go_past_the_page_cache_are_told_once(tmp_path, library, fault):
    run = tmp_path / "run"
    with ranks(library, fault) as (rank,):
        rank.ask("open", **options(tmp_path, local=False))
        for step in (10, 20, 30):
            rank.ask("submit", step=step)
            rank.ask("drain")
        notices = [report["message"] for report in rank.ask("poll") if report["step"] == -1]
    assert len(notices) == 1 and notices[0].startswith(f"{run}: ") and "go through the page cache" in notices[0], (
        notices
    )
    assert list(committed(run)) == [20, 30]


def test_a_store_in_memory_has_no_page_cache_to_go_past(library, tmp_path):
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        with ranks(library, "fail=EROFS:open:model.weights.h5:2") as (rank,):
            own = options(tmp_path, local=False)
            rank.ask("open", **{**own, "run_dir": memory})
            rank.ask("submit", step=10)
            rank.ask("drain")
            assert [report["step"] for report in rank.ask("poll")] == [10]
        assert list(committed(Path(memory))) == [10]


@pytest.mark.parametrize("leads_to", ["a directory", "nowhere"])
def test_a_partial_directory_that_is_a_link_is_refused_and_not_followed(tmp_path, library, leads_to):
    own, elsewhere = options(tmp_path, local=True), tmp_path / "elsewhere"
    link = tmp_path / "run" / f"step-0000000010.partial-{content.attempt_id(1).hex()}"
    link.symlink_to(elsewhere)
    if leads_to == "a directory":
        elsewhere.mkdir()
    refused = rf"{link}: expected a directory; found a symbolic link or another file\. Remove it"
    with ranks(library, "") as (rank,):
        rank.ask("open", **own)
        rank.ask("submit", step=10)
        with pytest.raises(vb.EngineFault, match=refused):
            rank.ask("wait", step=10, level=vb.EXTERNAL)
        (slot,) = slots(tmp_path)
        for call in (
            lambda: vb.slot_transfer(slot, tmp_path / "run"),
            lambda: vb.commit(tmp_path / "run", 10, content.attempt_id(1)),
        ):
            with pytest.raises(vb.EngineFault, match=refused):
                call()
        rank.ask("submit", step=20)
        rank.ask("wait", step=20, level=vb.EXTERNAL)
    assert link.is_symlink() and not (elsewhere.exists() and list(elsewhere.iterdir()))
    assert list(committed(tmp_path / "run")) == [20]
