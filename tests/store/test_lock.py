"""The lock of a run directory, with real processes."""

import contextlib
import errno
import fcntl
import json
import os
import socket
import subprocess
import sys

import pytest

from deepfreeze.errors import LockedError, RunError
from deepfreeze.store.lock import Lock
from tests.support import processes

pytestmark = pytest.mark.timing

HOLD = """
import os, sys, time
from deepfreeze.store.lock import Lock
lock = Lock.acquire(sys.argv[1])
if "fork" in sys.argv:
    child = os.fork()
    if child == 0:
        time.sleep(60)
        os._exit(0)
    print(child, flush=True)
else:
    print(0, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def launched_by_nobody(monkeypatch):
    for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS", "HOROVOD_SIZE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def holder(tmp_path):
    """Starts a process that holds the lock; (process, its forked child's pid or 0)."""
    with contextlib.ExitStack() as started:

        def start(*arguments):
            command = [sys.executable, "-c", HOLD, tmp_path, *arguments]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            process = started.enter_context(processes.child(command, **pipes))
            return process, int(process.stdout.readline())

        yield start


def test_a_second_job_is_refused_and_told_who_holds_it(tmp_path, holder):
    process, _ = holder()
    with pytest.raises(LockedError) as caught:
        Lock.acquire(tmp_path)
    error = caught.value
    content = json.loads((tmp_path / "lock").read_text())
    assert error.where == str(tmp_path)
    assert error.expected == "a run directory that no other job writes to"
    assert error.found == f"it is held by pid {process.pid} on {socket.gethostname()} since {content['since']}"
    assert "another run directory" in error.todo


def test_a_killed_holders_lock_is_taken_over(tmp_path, holder):
    process, _ = holder()
    process.kill()
    process.wait()
    with Lock.acquire(tmp_path):
        assert json.loads((tmp_path / "lock").read_text())["pid"] == os.getpid()


def test_a_forked_child_that_outlives_the_holder_does_not_keep_the_lock(tmp_path, holder):
    process, child = holder("fork")
    with pytest.raises(LockedError):
        Lock.acquire(tmp_path)
    process.kill()
    process.wait()
    os.kill(child, 0)  # still there
    Lock.acquire(tmp_path).release()


def test_one_process_cannot_take_it_twice_and_does_not_lose_it_by_trying(tmp_path):
    lock = Lock.acquire(tmp_path)
    with pytest.raises(LockedError, match="this process itself"):
        Lock.acquire(tmp_path / ".")
    code = "import sys; from deepfreeze.store.lock import Lock; Lock.acquire(sys.argv[1])"
    other = processes.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True)
    assert "LockedError" in other.stderr
    lock.release()
    lock.release()
    Lock.acquire(tmp_path).release()
    assert (tmp_path / "lock").read_text() == ""


def test_a_forked_child_that_releases_takes_nothing_from_its_parent(tmp_path):
    lock = Lock.acquire(tmp_path)
    pid = os.fork()
    if pid == 0:
        lock.release()
        try:
            Lock.acquire(tmp_path)
        except LockedError:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    assert json.loads((tmp_path / "lock").read_text())["pid"] == os.getpid()
    lock.release()


def test_no_descriptor_is_left_open(tmp_path, holder):
    before = len(os.listdir("/proc/self/fd"))
    Lock.acquire(tmp_path).release()
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("variable", ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS", "HOROVOD_SIZE"])
def test_ranks_that_forgot_hvd_init_are_told(tmp_path, monkeypatch, variable):
    monkeypatch.setenv(variable, "4")
    with Lock.acquire(tmp_path):
        with pytest.raises(LockedError, match=r"one of 4 .* hvd.init\(\)"):
            Lock.acquire(tmp_path)
        with pytest.raises(LockedError) as caught:
            Lock.acquire(tmp_path, world_size=4)
        assert "hvd.init" not in str(caught.value)


def test_a_missing_run_directory_is_a_run_error(tmp_path):
    with pytest.raises(RunError) as caught:
        Lock.acquire(tmp_path / "none")
    assert not isinstance(caught.value, LockedError)


def test_garbage_in_the_lock_file_does_not_matter(tmp_path):
    for text in (
        b"\xff\0",
        b"{}",
        b'{"host": 1, "pid": "x"}',
        b"[" * 4096,
        b'{"host": "a", "pid": 1e999, "since": ""}',
    ):
        (tmp_path / "lock").write_bytes(text)
        Lock.acquire(tmp_path).release()


@pytest.fixture(params=[errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS])
def no_locks(request, monkeypatch):
    def refuse(*args):
        raise OSError(request.param, os.strerror(request.param))

    monkeypatch.setattr(fcntl, "lockf", refuse)


def write_holder(run, **changes):
    value = {"host": socket.gethostname(), "pid": os.getppid(), "since": "2999-01-01T00:00:00Z"}
    (run / "lock").write_text(json.dumps({**value, **changes}))


def test_without_file_locks_a_living_holder_is_respected(tmp_path, no_locks):
    write_holder(tmp_path)
    with pytest.raises(LockedError, match=f"pid {os.getppid()} on {socket.gethostname()}"):
        Lock.acquire(tmp_path)


def test_without_file_locks_a_dead_holder_is_taken_over(tmp_path, no_locks):
    with processes.child(["true"]) as gone:
        gone.wait()
    write_holder(tmp_path, pid=gone.pid)
    Lock.acquire(tmp_path).release()


def test_without_file_locks_a_recycled_pid_is_not_the_holder(tmp_path, no_locks):
    write_holder(tmp_path, since="2001-01-01T00:00:00Z")
    Lock.acquire(tmp_path).release()


def test_without_file_locks_another_hosts_holder_is_respected(tmp_path, no_locks):
    """Without file locks another host's holder is respected, and the error says how to go on."""
    write_holder(tmp_path, host="node17", pid=4711)
    with pytest.raises(LockedError, match=r"pid 4711 on node17.*[Dd]elete .*lock"):
        Lock.acquire(tmp_path)


def test_without_file_locks_a_released_lock_is_free(tmp_path, no_locks):
    with Lock.acquire(tmp_path), pytest.raises(LockedError):
        Lock.acquire(tmp_path)
    Lock.acquire(tmp_path).release()
