"""Whom files belong to and who may write to them, whatever the umask; and what others have put in their place."""

from __future__ import annotations

import os
import signal
import socket
import stat
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest

import veloc_bindings as vb
from deepfreeze.errors import RunError
from deepfreeze.format.structure import Structure
from deepfreeze.notices import unheard
from deepfreeze.store.lock import Lock
from deepfreeze.store.writable_run import WritableRun
from deepfreeze.tiers import leftovers
from tests.support import content, files, jobs, restart
from tests.support.ranks import Rank, committed, options, ranks, slots, until

MEMORY = "/dev/shm"
NOBODY = 65534
UMASKS = [0o000, 0o022, 0o027, 0o077]
root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")


@contextmanager
def umask(value: int):
    before = os.umask(value)
    try:
        yield
    finally:
        os.umask(before)


@pytest.fixture(params=["disk", "memory"])
def node(request, tmp_path):
    """A folder for a job whose local tier is on disk, or in memory (where slots are captured into)."""
    if request.param == "disk":
        yield tmp_path
    else:
        with tempfile.TemporaryDirectory(dir=MEMORY, prefix="deepfreeze-test-") as folder:
            yield Path(folder)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def check_run(run: Path, mask: int) -> set[str]:
    """Every file of the run; returns their names."""
    seen = set()
    for path in [run, *run.rglob("*")]:
        most = 0o775 if path.is_dir() else 0o664
        assert mode(path) == most & ~mask, f"{path}: {mode(path):o} with umask {mask:03o}"
        seen.add(path.name)
    return seen


def check_local(base: Path) -> int:
    """Every file and directory of the local tier; returns how many slots there are."""
    found = [path for path in base.rglob("*") if path.name != "other"]
    assert found
    for path in found:
        assert mode(path) == (0o700 if path.is_dir() else 0o600), f"{path}: {mode(path):o}"
    return sum(path.suffix == ".slot" for path in found)


@contextmanager
def at_rest(group: list[Rank]):
    """Stops the ranks meanwhile, so that no name is there when a directory is listed and gone when the file is looked at."""
    for rank in group:
        os.kill(rank.process.pid, signal.SIGSTOP)
    for rank in group:
        os.waitid(os.P_PID, rank.process.pid, os.WSTOPPED | os.WNOWAIT)
    yield
    for rank in group:
        os.kill(rank.process.pid, signal.SIGCONT)


@pytest.mark.timing
@pytest.mark.parametrize("mask", UMASKS, ids="umask-{:03o}".format)
def test_the_engine_s_files_honour_the_umask_and_are_never_world_writable(node, library, mask):
    stopped, step = node / "stopped", "step-0000000020.partial"
    with umask(mask), ranks(library, "", f"sigstop:rename:{step}:1", log=str(stopped)) as group:
        for number, rank in enumerate(group):
            rank.ask("open", **options(node, number, 2, captured=True))
            rank.ask("submit", step=10)
        for rank in group:
            rank.ask("drain")
        os.chmod(node / "run", 0o775 & ~mask)  # made by the tests' own options()
        with at_rest(group):
            assert {"manifest.json", "model.weights.h5", "records"} <= check_run(node / "run", mask)
        # And as it is before the commit: rank 1 stops before it gives its record its name.
        for rank in group:
            rank.send("submit", step=20)
        until(stopped.exists)
        until(lambda: list((node / "run").glob(f"{step}*/rank-00000.record")))
        with at_rest(group):
            assert {"rank-00000.record", "rank-00001.record.tmp"} <= check_run(node / "run", mask)
            assert sum(check_local(node / f"local-{rank}") for rank in range(2)) >= 2


@pytest.mark.parametrize("mask", UMASKS, ids="umask-{:03o}".format)
def test_python_s_files_honour_the_umask_and_are_never_world_writable(tmp_path, library, mask):
    path = tmp_path / "run"
    with umask(mask):
        run = WritableRun.open_or_make(path)
        run.store_structure(Structure.from_bytes(files.sample().structure, "here"))
        run = WritableRun.open(path)
        fixed = {"run_id": bytes.fromhex(run.run_id), "attempt": content.attempt_id(1), "structure": content.STRUCTURE}
        with (
            Lock.acquire(path),
            vb.EmbeddedEngine.open(run_dir=path, local_dir=None, file_size=4096, **fixed) as engine,
        ):
            data = memoryview(content.model_bytes(1, 10, 4096))
            engine.submit(10, [(data, 4096, 0)], b"", 60)
            engine.wait(10, vb.EXTERNAL, 60)
        run.abandon(10, content.attempt_id(1).hex())
    assert {"run.json", "lock", "structures", "abandoned", "manifest.json"} <= check_run(path, mask)


@pytest.mark.tensorflow
@pytest.mark.full
def test_a_training_s_files_are_never_world_writable_even_with_umask_000(tmp_path):
    node = tmp_path / "node"
    node.mkdir()
    with umask(0):
        jobs.run("small.py", tmp_path / "run", 4, "every=2", "keep=2", f'local="{node}"')
    assert {"run.json", "lock", "structures", "model.weights.h5"} <= check_run(tmp_path / "run", 0)


def hijack(own: Path, kind: str, elsewhere: Path) -> str:
    """Puts something in the place of a directory of the local tier; returns what the refusal has to say of it."""
    own.parent.mkdir(mode=0o700, exist_ok=True)
    if kind == "link":
        own.symlink_to(elsewhere)
        return "something else"
    own.mkdir(mode=0o700)
    if kind == "other-user":
        os.chown(own, NOBODY, NOBODY)
        return f"one of user {NOBODY}"
    own.chmod({"group": 0o770, "world": 0o777}[kind])
    return "one that others may write to"


@pytest.mark.parametrize("kind", ["link", pytest.param("other-user", marks=root), "group", "world"])
@pytest.mark.parametrize("inside", ["", content.RUN_ID.hex()], ids=["user", "run"])
@pytest.mark.parametrize("captured", [False, True], ids=["handed-over", "captured"])
def test_a_local_directory_that_others_control_is_refused(node, library, kind, inside, captured):
    """A local directory that other users control is refused, and the external store is used alone."""
    elsewhere = node / "elsewhere"
    elsewhere.mkdir()
    own = options(node, captured=captured)
    found = hijack(node / "local-0" / f"deepfreeze-{os.geteuid()}" / inside, kind, elsewhere)
    with ranks(library, "") as (rank,):
        rank.ask("open", **own)
        rank.ask("submit", step=10)
        rank.ask("drain")
        (notice,) = [r["message"] for r in rank.ask("poll") if r["step"] == -1]
        rank.ask("close")
    assert f"expected a directory of user {os.geteuid()} that nobody else writes to; found {found}. Remove it" in notice
    assert list(committed(node / "run")) == [10]
    assert not list(elsewhere.iterdir()) and not slots(node)


@pytest.mark.parametrize("kind", ["symbolic-link", "hard-link", pytest.param("other-user", marks=root), "fifo"])
@pytest.mark.parametrize("captured", [False, True], ids=["handed-over", "captured"])
def test_a_slot_that_leads_to_another_file_is_not_written_through(node, library, kind, captured):
    precious = node / "precious"
    precious.write_bytes(b"precious" * 1000)
    own = options(node, captured=captured)
    place = node / "local-0" / f"deepfreeze-{os.geteuid()}" / content.RUN_ID.hex()
    place.mkdir(parents=True)
    place.chmod(0o700)
    place.parent.chmod(0o700)
    for index in range(2):
        slot = place / files.slot_name(0, content.attempt_id(own["attempt"]).hex(), index)
        if kind == "symbolic-link":
            slot.symlink_to(precious)
        elif kind == "hard-link":
            slot.hardlink_to(precious)
        elif kind == "fifo":
            os.mkfifo(slot)
        else:
            slot.write_bytes(precious.read_bytes())
            slot.chmod(0o666)
            os.chown(slot, NOBODY, NOBODY)
            precious = slot
    before = mode(precious)
    with ranks(library, "") as (rank,):
        rank.ask("open", **own)
        rank.ask("submit", step=10)
        rank.ask("drain")
        notices = [r["message"] for r in rank.ask("poll") if r["step"] == -1]
        rank.ask("close")
    assert len(notices) == 1 and ".slot" in notices[0], notices
    assert list(committed(node / "run")) == [10]
    assert precious.read_bytes() == b"precious" * 1000 and mode(precious) == before


@pytest.mark.parametrize("kind", ["link", pytest.param("other-user", marks=root), "group", "world"])
@pytest.mark.parametrize("inside", ["", content.RUN_ID.hex()], ids=["user", "run"])
def test_a_start_leaves_a_directory_that_others_control_alone(tmp_path, library, kind, inside):
    """A start neither reads nor deletes in a directory that others control."""
    restart.make_run(tmp_path / "run")
    (place,) = restart.local_tiers(tmp_path, 1)
    with ranks(library, "kill-before:rename:.record:1") as (rank,):
        rank.send("open", **options(tmp_path)).send("submit", step=10)
        rank.process.wait(120)
    (slot,) = leftovers.leftover_slots(place, unheard)
    own = place if inside else place.parent
    if kind == "link":  # to what would be taken for a whole slot, and deleted
        own.rename(tmp_path / "elsewhere")
        own.symlink_to(tmp_path / "elsewhere")
    elif kind == "other-user":
        os.chown(own, NOBODY, NOBODY)
    else:
        own.chmod({"group": 0o770, "world": 0o777}[kind])
    assert not restart.reopen(tmp_path, 1).committed and not committed(tmp_path / "run")
    assert Path(slot.path).exists()
    os.unlink(slot.path)
    restart.reopen(tmp_path, 1)
    if kind == "link":  # empty by now, and somebody else's
        assert (tmp_path / "elsewhere").is_dir() and place.exists()


@pytest.mark.parametrize("kind", ["a symbolic link", "a directory", "a FIFO", "a file with 2 names", "something else"])
def test_what_lies_in_the_lock_s_place_is_refused_and_left_alone(tmp_path, monkeypatch, kind):
    precious = tmp_path / "precious"
    precious.write_text("precious")
    run = WritableRun.open_or_make(tmp_path / "run")
    lock = run.path / "lock"
    if kind == "a symbolic link":
        lock.symlink_to(precious)
    elif kind == "a directory":
        lock.mkdir()
    elif kind == "a FIFO":
        os.mkfifo(lock)
    elif kind == "something else":
        with socket.socket(socket.AF_UNIX) as bound:
            monkeypatch.chdir(run.path)  # a socket's path has to be short
            bound.bind("lock")
    else:
        lock.hardlink_to(precious)
    before = os.lstat(lock)
    with pytest.raises(RunError) as caught:
        Lock.acquire(run.path)
    assert caught.value.where == str(lock) and caught.value.found == kind
    assert "neither followed nor written to" in caught.value.todo
    assert precious.read_text() == "precious"
    after = os.lstat(lock)
    assert (after.st_ino, after.st_mode, after.st_size) == (before.st_ino, before.st_mode, before.st_size)


def test_a_symbolic_link_to_nothing_in_the_lock_s_place_makes_nothing(tmp_path):
    run = WritableRun.open_or_make(tmp_path / "run")
    (run.path / "lock").symlink_to(tmp_path / "new")
    with pytest.raises(RunError, match="symbolic link"):
        Lock.acquire(run.path)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("swap", ["a symbolic link", "another file", "nothing"])
def test_releasing_the_lock_changes_nothing_but_the_lock(tmp_path, swap):
    """Releasing the lock deletes no file, and writes to no file but the lock."""
    precious = tmp_path / "precious"
    precious.write_text("precious")
    run = WritableRun.open_or_make(tmp_path / "run")
    lock = Lock.acquire(run.path)
    (run.path / "lock").unlink()
    if swap == "a symbolic link":
        (run.path / "lock").symlink_to(precious)
    elif swap == "another file":
        (run.path / "lock").write_text("other")
    left = sorted(os.listdir(run.path))
    lock.release()
    assert sorted(os.listdir(run.path)) == left
    assert precious.read_text() == "precious"
    assert swap != "another file" or (run.path / "lock").read_text() == "other"
