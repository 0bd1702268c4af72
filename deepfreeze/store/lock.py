"""The lock of a run directory: one job writes to a run at a time.

A POSIX record lock on ``RUN/lock``: it works between hosts on NFS, GPFS and on Lustre mounted with ``flock``, forked
children don't inherit it, and it vanishes with its process, however that ends. Two properties need care. It excludes
processes, not threads of one process, so a registry does that. And it is dropped when its process closes ANY descriptor
of the file, so nothing else in the holding process may open ``RUN/lock``.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import socket
import stat
import threading
import time
from datetime import datetime, timezone
from pathlib import Path
from types import TracebackType
from typing import Any

from deepfreeze.errors import LockedError, RunError
from deepfreeze.format import names
from deepfreeze.format.run_file import utc_now
from deepfreeze.store.durable import FILE_MODE

# Variables that launchers set to the number of ranks they started.
_LAUNCHERS = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS", "HOROVOD_SIZE")
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
# What can't be opened as a file is: a link, a directory, a socket, a device without a driver.
_NO_FILE = (errno.ELOOP, errno.EISDIR, errno.ENXIO, errno.ENODEV)
_KINDS = {stat.S_IFLNK: "a symbolic link", stat.S_IFDIR: "a directory", stat.S_IFIFO: "a FIFO"}
_SETTLE_S = 0.2  # how long a holder may take to write its name, or a rival to overwrite ours
_SLACK_S = 2.0  # of a process's start time against a time stamp of whole seconds

_guard = threading.Lock()
_held: dict[tuple[int, int], Lock] = {}  # by device and inode of the lock file


class Lock:
    """A held lock; made by ``Lock.acquire``. Also a context manager, which releases."""

    def __init__(self, path: Path, fd: int, key: tuple[int, int], holder: dict[str, Any]) -> None:
        self.path = path
        self.holder = holder
        self._fd = fd
        self._key = key
        self._pid = os.getpid()

    @classmethod
    def acquire(cls, run_path: str | os.PathLike[str], world_size: int = 1) -> Lock:
        """Takes the lock of an existing run directory without waiting; a dead holder's lock is taken over.

        ``world_size`` is the caller's, for the advice. LockedError names the holder's host, pid and since when;
        RunError if the lock file can't be opened, or is no file of its own.
        """
        path = Path(os.fsdecode(run_path)) / names.LOCK_FILE
        with _guard:
            cls._refuse_own(path, world_size)
            fd = _open(path)
            try:
                holder = _take(fd, path.parent, world_size)
                status = os.fstat(fd)
            except BaseException:
                os.close(fd)
                raise
            lock = cls(path, fd, (status.st_dev, status.st_ino), holder)
            _held[lock._key] = lock
            return lock

    @staticmethod
    def _refuse_own(path: Path, world_size: int) -> None:
        try:
            status = os.stat(path)
        except OSError:
            return
        own = _held.get((status.st_dev, status.st_ino))
        # A forked child has its parent's registry, but not its locks.
        if own is not None and own._pid == os.getpid():
            raise _locked(path.parent, own.holder, world_size, "this process itself")

    def release(self) -> None:
        """Gives the lock back. Harmless when repeated, or in a forked child, where there is nothing to give back."""
        with _guard:
            if self._fd < 0:
                return
            fd, self._fd = self._fd, -1
            if self._pid == os.getpid():
                _held.pop(self._key, None)
                # Where there are no locks, an empty file says that it is free. Elsewhere a stale name is harmless.
                with contextlib.suppress(OSError):
                    os.ftruncate(fd, 0)
            os.close(fd)

    def __enter__(self) -> Lock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def _open(path: Path) -> int:
    """The lock file, made if missing. Its holder's name is written into it, so it must be nothing but a lock file: neither a
    link to another file, nor another file's second name; and a FIFO must not keep the job waiting."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, FILE_MODE)
    except OSError as error:
        if error.errno in _NO_FILE and os.path.lexists(path):
            raise _no_lock_file(path, _kind(os.lstat(path).st_mode)) from error
        todo = "check that the run directory exists and may be written"
        found = error.strerror or str(error)
        raise RunError(where=path, expected="a lock file", found=found, todo=todo) from error
    status = os.fstat(fd)
    if stat.S_ISREG(status.st_mode) and status.st_nlink <= 1:
        return fd
    os.close(fd)
    linked = f"a file with {status.st_nlink} names" if stat.S_ISREG(status.st_mode) else ""
    raise _no_lock_file(path, linked or _kind(status.st_mode))


def _kind(mode: int) -> str:
    return _KINDS.get(stat.S_IFMT(mode), "something else")


def _no_lock_file(path: Path, found: str) -> RunError:
    todo = "remove it if no job is running here, and find out who made it: it was neither followed nor written to"
    return RunError(where=path, expected="a lock file, or nothing", found=found, todo=todo)


def _take(fd: int, run: Path, world_size: int) -> dict[str, Any]:
    me = {"host": socket.gethostname(), "pid": os.getpid(), "since": utc_now()}
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN):
            raise _locked(run, _settled(fd), world_size) from None
        if error.errno not in _NO_LOCKS:
            todo = "check that the file system supports POSIX record locks (Lustre: mount option flock)"
            found = error.strerror or str(error)
            raise RunError(where=run, expected="to lock the run directory", found=found, todo=todo) from error
        _take_by_name(fd, run, me, world_size)
        return me
    _write(fd, me)
    return me


def _take_by_name(fd: int, run: Path, me: dict[str, Any], world_size: int) -> None:
    """Where the file system has no locks: the name in the file counts for as long as its process lives."""
    holder = _read(fd)
    if holder is not None and _may_live(holder):
        raise _locked(run, holder, world_size, by_name=True)
    _write(fd, me)
    # Two jobs may have found it free at once; the one that wrote last keeps it.
    time.sleep(_SETTLE_S)
    now = _read(fd)
    if now != me:
        raise _locked(run, now, world_size, by_name=True)


def _may_live(holder: dict[str, Any]) -> bool:
    if holder["host"] != socket.gethostname():
        return True  # nobody can know from here
    if holder["pid"] == os.getpid():
        return False  # not in the registry: an earlier process had this pid
    try:
        os.kill(holder["pid"], 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # somebody else's process
    started = _started(holder["pid"])
    # A process younger than the lock only has the holder's pid.
    return started is None or started <= _seconds(holder["since"]) + _SLACK_S


def _started(pid: int) -> float | None:
    """When a process of this host started, in seconds since the epoch; None if the system does not say."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        boot = next(line for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime "))
        return int(boot.split()[1]) + int(fields[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, StopIteration):
        return None


def _seconds(since: str) -> float:
    try:
        return datetime.strptime(since, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc).timestamp()
    except ValueError:
        return float("inf")


def _settled(fd: int) -> dict[str, Any] | None:
    """The holder's name, waiting briefly: right after it locked, the last holder's may still be there."""
    end = time.monotonic() + 5 * _SETTLE_S
    while True:
        holder = _read(fd)
        if (holder is not None and _may_live(holder)) or time.monotonic() > end:
            return holder
        time.sleep(_SETTLE_S / 10)


def _read(fd: int) -> dict[str, Any] | None:
    try:
        value = json.loads(os.pread(fd, 4096, 0))
        holder: dict[str, Any] = {"host": str(value["host"]), "pid": int(value["pid"]), "since": str(value["since"])}
    except (OSError, ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None  # empty, or being written
    return holder if 0 < holder["pid"] < 2**31 else None


def _write(fd: int, holder: dict[str, Any]) -> None:
    data = json.dumps(holder).encode() + b"\n"
    os.ftruncate(fd, 0)
    os.pwrite(fd, data, 0)
    os.fsync(fd)


def _locked(
    run: Path, holder: dict[str, Any] | None, world_size: int, who: str = "", by_name: bool = False
) -> LockedError:
    found = "it is held by a process that has not written its name yet"
    if holder is not None:
        who = f"{who}, " if who else ""
        found = f"it is held by {who}pid {holder['pid']} on {holder['host']} since {holder['since']}"
    todo = "wait for that job, end it, or choose another run directory"
    if holder is not None and (holder["pid"], holder["host"]) == (os.getpid(), socket.gethostname()):
        todo = "call close() on the Checkpoint that has it open, or choose another run directory"
    if by_name and holder is not None and holder["host"] != socket.gethostname():
        todo = f"this file system has no locks: if that job is gone, delete {run / names.LOCK_FILE} and start again"
    elif world_size == 1 and _launched_ranks() > 1:
        todo = (
            f"this process is one of {_launched_ranks()} that were launched together, but its world is one rank: call "
            "hvd.init() before deepfreeze.Checkpoint if they train one model, or give each job its own run directory"
        )
    expected = "a run directory that no other job writes to"
    return LockedError(where=run, expected=expected, found=found, todo=todo)


def _launched_ranks() -> int:
    counts = (os.environ.get(name, "") for name in _LAUNCHERS)
    return max((int(count) for count in counts if count.isascii() and count.isdigit()), default=1)
