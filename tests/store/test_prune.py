"""Deleting checkpoints: never the newest, never under a job's feet, never half."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

import deepfreeze
from deepfreeze.errors import CorruptError, LockedError, NotFoundError, OptionError
from deepfreeze.store import Latest, Spaced, durable
from deepfreeze.store.lock import Lock
from deepfreeze.store.prune import plan, prune
from deepfreeze.store.writable_run import WritableRun
from tests.support import files, killed, processes, restart

STEPS = (5, 10, 15, 20, 25)


@pytest.fixture
def run(tmp_path):
    path = files.write_run(tmp_path / "run")
    for step in STEPS:
        files.write_checkpoint(path, step)
    return path


def steps(run):
    return [info.step for info in deepfreeze.checkpoints(run)]


def nbytes(folder):
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def test_the_newest_are_kept_and_the_rest_is_gone(run):
    expected = sum(nbytes(run / f"step-{step:010d}") for step in (5, 10, 15))
    done = prune(run, 2)
    assert steps(run) == [20, 25] == list(done.keep)
    assert ([item.step for item in done.removals], done.freed, done.done, done.left) == (
        [5, 10, 15],
        expected,
        True,
        (),
    )
    assert sorted(os.listdir(run)) == [
        "lock",
        "marks.json",
        "run.json",
        "step-0000000020",
        "step-0000000025",
        "structures",
    ]
    with deepfreeze.read(run) as tensors:
        assert len([tensors[name] for name in tensors]) == 5


@pytest.mark.parametrize("keep", [1, 2, 5, 6, 10**9])
@pytest.mark.parametrize("every", [None, 1, 7, 10, 10**9])
def test_the_newest_one_is_never_touched(run, keep, every):
    prune(run, Latest(keep) | Spaced(steps=every) if every else keep)
    left = steps(run)
    assert left[-min(keep, 5) :] == list(STEPS)[-min(keep, 5) :]
    closest = {None: [], 1: STEPS, 7: (5, 15, 20, 25), 10: (10, 20, 25), 10**9: []}[every]
    assert set(left) == {*STEPS[-keep:], *closest}


def test_the_newest_one_whose_ranks_agreed_is_never_touched(run):
    for step in (30, 35, 40):
        files.write_checkpoint(run, step, diverged=3)
    assert list(plan(run, 2).keep) == [25, 35, 40]
    assert list(prune(run, 1).keep) == [25, 40] and steps(run) == [25, 40]
    files.write_checkpoint(run, 45)
    assert list(prune(run, 1).keep) == [45] and steps(run) == [45]


@pytest.mark.parametrize("keep", [0, -1, True, 2.0, None])
def test_keeping_none_is_refused_before_anything_is_locked(run, keep):
    with pytest.raises(OptionError, match=r"keep=: expected a whole number.*, or a rule"):
        prune(run, keep)
    with pytest.raises(OptionError):
        prune(run, "2")
    assert steps(run) == list(STEPS) and not (run / "lock").exists()


def test_a_plan_changes_nothing_and_says_what_would_go(run):
    before = sorted(map(str, run.rglob("*")))
    found = plan(run, Latest(1) | Spaced(steps=10))
    assert ([item.step for item in found.removals], list(found.keep), found.done) == ([5, 15], [10, 20, 25], False)
    assert sorted(map(str, run.rglob("*"))) == before
    assert prune(run, Latest(1) | Spaced(steps=10)).freed == found.freed


def test_a_run_that_a_job_holds_is_refused_and_the_holder_named(run):
    code = (
        "import sys; from deepfreeze.store.lock import Lock\n"
        "lock = Lock.acquire(sys.argv[1]); print('held', flush=True); sys.stdin.read()"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with processes.child([sys.executable, "-c", code, run], **pipes) as holder:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(LockedError, match=f"held by pid {holder.pid} on"):
            prune(run, 1)
        assert steps(run) == list(STEPS)
        holder.stdin.close()
        holder.wait()
    assert len(prune(run, 1).removals) == 4


def test_the_lock_is_free_again_also_after_an_error(run, monkeypatch):
    monkeypatch.setattr(durable, "sync_dir", lambda path: (_ for _ in ()).throw(OSError(30, "Read-only")))
    with pytest.raises(deepfreeze.RunError):
        prune(run, 1)
    monkeypatch.undo()
    Lock.acquire(run).release()


def test_what_was_moved_aside_goes_only_if_asked(run):
    opened = WritableRun.open(run)
    opened.quarantine(5)
    opened.abandon(25, files.ATTEMPT)
    files.write_checkpoint(run, 5)
    (run / "step-0000000005" / "manifest.json").unlink()
    opened.quarantine(5)  # its attempt is not known
    prune(run, 5)
    assert len(os.listdir(run / "damaged")) == 2 and len(os.listdir(run / "abandoned")) == 1
    done = prune(run, 5, damaged=True, abandoned=True)
    assert [(item.kind, item.step) for item in done.removals] == [("damaged", 5), ("damaged", 5), ("abandoned", 25)]
    assert os.listdir(run / "damaged") == os.listdir(run / "abandoned") == []
    assert steps(run) == [10, 15, 20] and done.freed > 60000


def test_what_is_no_checkpoint_is_left_alone(run, tmp_path):
    (run / "step-0000000005" / "manifest.json").unlink()
    (run / "notes").mkdir()
    (run / "damaged").mkdir()
    (run / "damaged" / "mine").write_text("")
    (tmp_path / "elsewhere").mkdir()
    (run / "damaged" / f"step-0000000003-{files.ATTEMPT}").symlink_to(tmp_path / "elsewhere")
    files.write_partial(run, 30, files.sample())
    prune(run, 1, damaged=True, abandoned=True)
    left = set(os.listdir(run))
    assert {"step-0000000005", "notes", "damaged", f"step-0000000030.partial-{files.ATTEMPT}"} <= left
    assert len(os.listdir(run / "damaged")) == 2 and (tmp_path / "elsewhere").exists()
    assert steps(run) == [25]


def contents(folder):
    """{name: {file: bytes}} of all checkpoints in a folder."""
    found = {path.name: path for path in folder.iterdir() if path.name.startswith("step-")}
    return {name: {file.name: file.read_bytes() for file in path.iterdir()} for name, path in found.items()}


@pytest.mark.slow
@pytest.mark.crash
def test_a_prune_killed_at_any_change_leaves_whole_checkpoints(run, tmp_path):
    """A prune that is killed at any change leaves whole checkpoints; the next prune or start finishes its work."""
    opened = WritableRun.open(run)
    opened.quarantine(5)
    opened.abandon(20, files.ATTEMPT)
    places = [run, run / "damaged", run / "abandoned"]
    before, kept = {place: contents(place) for place in places}, tmp_path / "kept"
    run.rename(kept)

    def anew():
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(kept, run)

    met = set()
    for number, call in enumerate(killed.before_each_call(lambda: prune(run, 1, damaged=True, abandoned=True), anew)):
        for place in places:
            # Each is there as a whole, under its name, or not at all.
            assert contents(place).items() <= before[place].items(), call
        left = steps(run)
        assert left == [10, 15, 25][-len(left) :] and left, f"{call}: oldest first, and never the newest"
        trash = [name for name in os.listdir(run) if name.startswith(".trash")]
        assert len(trash) <= 1, call
        met.add((len(left), len(os.listdir(run / "damaged")), len(os.listdir(run / "abandoned")), bool(trash)))
        if number % 2:
            prune(run, 1, damaged=True, abandoned=True)
            assert [steps(run), *(os.listdir(place) for place in places[1:])] == [[25], [], []], call
        else:
            restart.reopen(tmp_path, 1)
            assert steps(run) == left, f"{call}: a start deletes nothing but what was on its way out"
        assert not restart.leftovers(run), call
    # It was caught in each of the four deletions and before each.
    done = {(*counts, trash) for counts in ((2, 1, 1), (1, 1, 1), (1, 0, 1), (1, 0, 0)) for trash in (True, False)}
    assert met == {(3, 1, 1, False)} | done


def test_what_can_not_be_deleted_is_said_and_counts_as_nothing_freed(run, monkeypatch):
    monkeypatch.setattr(durable, "delete", lambda path: None)
    done = prune(run, 4)
    assert (done.left, done.freed) == (done.removals, 0)
    monkeypatch.undo()
    assert steps(run) == [10, 15, 20, 25]
    prune(run, 4)
    assert not [name for name in os.listdir(run) if name.startswith(".trash")]


def test_a_reader_keeps_what_it_has_open(run):
    with deepfreeze.read(run, 5) as tensors:
        prune(run, 1)
        assert np_equal(tensors["dense/kernel"], files.sample().values["dense/kernel"])


def np_equal(left, right):
    return left.tobytes() == right.tobytes()


def test_no_run_and_a_damaged_run_are_refused(run, tmp_path):
    with pytest.raises(NotFoundError):
        prune(tmp_path, 1)
    assert not (tmp_path / "lock").exists()
    files.write_run(run, signed=True)
    files.flip(run / "run.json", 30)
    with pytest.raises(CorruptError):
        prune(run, 1)
    assert len(list(run.glob("step-*"))) == 5
