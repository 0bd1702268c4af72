"""Records what Python does to the files below a folder, in the log to which the engine's RecordEnv appends its own calls. The log has
all of them in the order in which they happen; native/testing/record_env.h describes its format.

Calls that fail are left out. Only calls of ``os`` are recorded: ``open(path, "w")`` goes past this. A test that replays a log
(tests/support/page_cache.py) compares the outcome with the real folder, and so notices changes that were not recorded.
"""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path
from typing import Any

from tests.support import page_cache

_OURS = 1 << 31  # of the handles of one process; the engine's are below


class Recorder:
    """Records from when it is made until the process ends, so a test makes it in a child process."""

    def __init__(self, log: Path, below: Path) -> None:
        self._below, self._lock = str(below), threading.RLock()
        self._log = open(log, "ab", buffering=0)  # past os, which others count the calls of
        self._real = {name: getattr(os, name) for name in _CALLS}
        self._handles: dict[int, int] = {}  # of open files, by descriptor
        self._opened = 0
        for name in _CALLS:
            setattr(os, name, getattr(self, name))

    def mark(self, text: str) -> None:
        """Appends a mark: by now something has happened that the test knows of, for example a commit."""
        self._say("!", text)

    def open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        with self._lock:
            fd = self._real["open"](path, flags, mode, dir_fd=dir_fd)
            where = self._path(path, dir_fd)
            if where and flags & (os.O_ACCMODE | os.O_CREAT) and stat.S_ISREG(os.fstat(fd).st_mode):
                self._opened += 1
                self._handles[fd] = os.getpid() << 32 | _OURS | self._opened
                self._say("O", where, handle=self._handles[fd], mode=2 if flags & os.O_TRUNC else 1)
            return fd

    def close(self, fd: int) -> None:
        with self._lock:
            self._handles.pop(fd, None)
            self._real["close"](fd)

    def write(self, fd: int, data: Any) -> int:
        with self._lock:
            at = os.lseek(fd, 0, os.SEEK_CUR) if fd in self._handles else 0
            done = self._real["write"](fd, data)
            self._wrote(fd, data, at, done)
            return done

    def pwrite(self, fd: int, data: Any, offset: int) -> int:
        with self._lock:
            done = self._real["pwrite"](fd, data, offset)
            self._wrote(fd, data, offset, done)
            return done

    def ftruncate(self, fd: int, length: int) -> None:
        with self._lock:
            self._real["ftruncate"](fd, length)
            if fd in self._handles:
                self._say("T", handle=self._handles[fd], argument=length)

    def fsync(self, fd: int) -> None:
        with self._lock:
            self._real["fsync"](fd)
            if fd in self._handles:
                self._say("S", handle=self._handles[fd])
            elif stat.S_ISDIR(os.fstat(fd).st_mode) and (where := self._path("", fd)):
                self._say("Y", where)

    fdatasync = fsync

    def rename(self, src: Any, dst: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None) -> None:
        self._two("R", "rename", src, dst, src_dir_fd, dst_dir_fd)

    def replace(self, src: Any, dst: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None) -> None:
        self._two("R", "replace", src, dst, src_dir_fd, dst_dir_fd)

    def link(self, src: Any, dst: Any, **options: Any) -> None:
        assert not options, "no call of ours has any"
        with self._lock:
            self._real["link"](src, dst)
            self._say_path("L", self._path(src, None), self._path(dst, None))

    def mkdir(self, path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        with self._lock:
            self._real["mkdir"](path, mode, dir_fd=dir_fd)
            self._say_path("M", self._path(path, dir_fd))

    def unlink(self, path: Any, *, dir_fd: int | None = None) -> None:
        with self._lock:
            where = self._path(path, dir_fd)
            self._real["unlink"](path, dir_fd=dir_fd)
            self._say_path("U", where)

    remove = unlink

    def rmdir(self, path: Any, *, dir_fd: int | None = None) -> None:
        with self._lock:
            where = self._path(path, dir_fd)
            self._real["rmdir"](path, dir_fd=dir_fd)
            self._say_path("D", where)

    def _two(self, kind: str, call: str, src: Any, dst: Any, src_fd: int | None, dst_fd: int | None) -> None:
        with self._lock:
            paths = self._path(src, src_fd), self._path(dst, dst_fd)
            self._real[call](src, dst, src_dir_fd=src_fd, dst_dir_fd=dst_fd)
            self._say_path(kind, *paths)

    def _path(self, path: Any, dir_fd: int | None) -> str:
        """The absolute path; empty if it is not below the recorded folder."""
        above = os.getcwd() if dir_fd is None else os.readlink(f"/proc/self/fd/{dir_fd}")
        where = os.path.join(above, os.fspath(path)) if path else above
        return where if where == self._below or where.startswith(self._below + os.sep) else ""

    def _wrote(self, fd: int, data: Any, offset: int, done: int) -> None:
        if fd in self._handles:
            self._say("W", handle=self._handles[fd], argument=offset, data=bytes(memoryview(data)[:done]))

    def _say_path(self, kind: str, path: str, second: str = "") -> None:
        if path:
            self._say(kind, path, second)

    def _say(self, kind: str, path: str = "", second: str = "", **more: Any) -> None:
        self._log.write(page_cache.entry(page_cache.Op(kind, path, second, **more)))


_CALLS = ("open", "close", "write", "pwrite", "ftruncate", "fsync", "fdatasync", "rename", "replace", "link", "mkdir")
_CALLS += ("unlink", "remove", "rmdir")
