"""The lock of a run directory: one job writes to a run at a time.

It is a POSIX record lock on the file ``RUN/lock``. Such a lock works between hosts on NFS, on GPFS, and on Lustre mounted with ``flock``.
Forked children don't inherit it, and it ends with its process, however the process ends. Two properties need care. The lock excludes
other processes, but not a second call in the same process: a registry in this module does that. And the system drops the lock when the
process closes ANY descriptor of the file: nothing else in the holding process may open ``RUN/lock``.
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
from deepfreeze.launch import launched_as_several
from deepfreeze.store.durable import FILE_MODE

_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
# Errors of an open for a symbolic link, a directory, a socket, and a device without a driver.
_NO_FILE = (errno.ELOOP, errno.EISDIR, errno.ENXIO, errno.ENODEV)
_KINDS = {stat.S_IFLNK: "a symbolic link", stat.S_IFDIR: "a directory", stat.S_IFIFO: "a FIFO"}
# Seconds within which a holder writes its name into the file after it has got the lock, or a rival overwrites this process's name.
_SETTLE_S = 0.2
# Seconds by which a process's start time may be later than a time stamp it wrote: stamps are cut to whole seconds.
_SLACK_S = 2.0

_guard = threading.Lock()
_held: dict[tuple[int, int], Lock] = {}  # the locks that this process holds, by (device, inode) of the lock file


class Lock:
    """A lock that this process holds, made by ``Lock.acquire``. ``with`` releases it at the end of the block. ``path``: of the lock
    file; ``holder``: the keys host, pid and since (a time in UTC) of this process."""

    def __init__(self, path: Path, fd: int, key: tuple[int, int], holder: dict[str, Any]) -> None:
        """``key``: (device, inode) of the lock file."""
        self.path = path
        self.holder = holder
        self._fd = fd
        self._key = key
        self._pid = os.getpid()

    @classmethod
    def acquire(cls, run_path: str | os.PathLike[str], world_size: int = 1) -> Lock:
        """Takes the lock of an existing run directory, without waiting. The lock of a process that has ended is free.

        ``world_size``: the number of ranks that the caller knows of; it decides which advice an error gives. Raises LockedError,
        naming the holder's host, pid and start, if another process or this one holds the lock; RunError if the lock file can't be
        opened or locked, or is not a regular file with one name.
        """
        path = Path(os.fsdecode(run_path)) / names.LOCK_FILE
        with _guard:
            cls._refuse_second(path, world_size)
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
    def _refuse_second(path: Path, world_size: int) -> None:
        """LockedError if this process holds the lock already: the system would grant it a second time."""
        try:
            status = os.stat(path)
        except OSError:
            return
        lock = _held.get((status.st_dev, status.st_ino))
        # A forked child has a copy of its parent's registry, but not the locks.
        if lock is not None and lock._pid == os.getpid():
            raise _locked(path.parent, lock.holder, world_size, "this process itself")

    def release(self) -> None:
        """Gives the lock back. May be called again, and in a forked child, which holds no lock: it does nothing then."""
        with _guard:
            if self._fd < 0:
                return
            fd, self._fd = self._fd, -1
            if self._pid == os.getpid():
                _held.pop(self._key, None)
                # On a file system without locks an empty file means a free lock. On others a name that is left does no harm.
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
    """Opens the lock file, which is made if it is missing, and returns its descriptor. RunError for anything but a regular file with
    one name: the holder's name is written into the file, and would overwrite another file behind a link. Opening a FIFO does not block.
    """
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
    """Locks the open lock file, writes this process's name into it, and returns that name: host, pid, since."""
    me = {"host": socket.gethostname(), "pid": os.getpid(), "since": utc_now()}
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN):
            raise _locked(run, _wait_for_holder(fd), world_size) from None
        if error.errno not in _NO_LOCKS:
            todo = "check that the file system supports POSIX record locks (Lustre: mount option flock)"
            found = error.strerror or str(error)
            raise RunError(where=run, expected="to lock the run directory", found=found, todo=todo) from error
        _take_by_name(fd, run, me, world_size)
        return me
    _write_holder(fd, me)
    return me


def _take_by_name(fd: int, run: Path, me: dict[str, Any], world_size: int) -> None:
    """Takes the lock on a file system that has no locks: the process named in the file holds it, for as long as that process lives."""
    holder = _read_holder(fd)
    if holder is not None and _may_live(holder):
        raise _locked(run, holder, world_size, by_name=True)
    _write_holder(fd, me)
    # Two jobs may have found the lock free at the same time. The one that wrote its name last has it.
    time.sleep(_SETTLE_S)
    now = _read_holder(fd)
    if now != me:
        raise _locked(run, now, world_size, by_name=True)


def _may_live(holder: dict[str, Any]) -> bool:
    """Whether the named process may still be alive. False only if it is known to have ended."""
    if holder["host"] != socket.gethostname():
        return True  # another host's processes can't be seen from here
    if holder["pid"] == os.getpid():
        return False  # this process does not hold the lock: an earlier process had the same pid
    try:
        os.kill(holder["pid"], 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # the process lives, and belongs to another user
    started = _start_time(holder["pid"])
    # A process that started after the lock was taken is another one, which was given the same pid.
    return started is None or started <= _seconds(holder["since"]) + _SLACK_S


def _start_time(pid: int) -> float | None:
    """When a process of this host started, in seconds since 1970; None if /proc does not tell."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        boot = next(line for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime "))
        return int(boot.split()[1]) + int(fields[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, StopIteration):
        return None


def _seconds(since: str) -> float:
    """A time like 2026-11-21T03:35:58Z in seconds since 1970; infinity if it is none: then the holder counts as alive."""
    try:
        return datetime.strptime(since, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc).timestamp()
    except ValueError:
        return float("inf")


def _wait_for_holder(fd: int) -> dict[str, Any] | None:
    """The name of the process that holds the lock; None if it has not written its name within a second. Right after it got the lock, the
    name of the last holder may still be in the file."""
    end = time.monotonic() + 5 * _SETTLE_S
    while True:
        holder = _read_holder(fd)
        if (holder is not None and _may_live(holder)) or time.monotonic() > end:
            return holder
        time.sleep(_SETTLE_S / 10)


def _read_holder(fd: int) -> dict[str, Any] | None:
    """The name in the lock file: host, pid, since. None if there is none, or only part of one."""
    try:
        value = json.loads(os.pread(fd, 4096, 0))
        holder: dict[str, Any] = {"host": str(value["host"]), "pid": int(value["pid"]), "since": str(value["since"])}
    except (OSError, ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None  # the file is empty, or another process is writing to it
    return holder if 0 < holder["pid"] < 2**31 else None


def _write_holder(fd: int, holder: dict[str, Any]) -> None:
    data = json.dumps(holder).encode() + b"\n"
    os.ftruncate(fd, 0)
    os.pwrite(fd, data, 0)
    os.fsync(fd)


def _locked(
    run: Path, holder: dict[str, Any] | None, world_size: int, who: str = "", by_name: bool = False
) -> LockedError:
    """The error for a lock that is taken. ``who``: words to stand before the holder's pid; ``by_name``: the file system has no locks."""
    found = "it is held by a process that has not written its name yet"
    if holder is not None:
        who = f"{who}, " if who else ""
        found = f"it is held by {who}pid {holder['pid']} on {holder['host']} since {holder['since']}"
    todo = "wait for that job, end it, or choose another run directory"
    if holder is not None and (holder["pid"], holder["host"]) == (os.getpid(), socket.gethostname()):
        todo = "call close() on the Checkpoint that has it open, or choose another run directory"
    if by_name and holder is not None and holder["host"] != socket.gethostname():
        todo = f"this file system has no locks: if that job is gone, delete {run / names.LOCK_FILE} and start again"
    elif world_size == 1 and (launched := launched_as_several(os.environ)) is not None:
        todo = (
            f"this process is one of {launched[1]} that were launched together, but its world is one rank: call "
            "hvd.init() before deepfreeze.Checkpoint if they train one model, or give each job its own run directory"
        )
    expected = "a run directory that no other job writes to"
    return LockedError(where=run, expected=expected, found=found, todo=todo)
