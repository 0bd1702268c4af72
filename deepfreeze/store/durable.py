"""Durable changes of files and directories in a run (write, fsync, rename, delete), and the errors for changes that the system refuses.

An fsync of the directory follows each rename: without it a loss of power may undo the rename, and bring back the file that was just
moved away.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from deepfreeze.errors import CorruptError, Error, RunError
from deepfreeze.format import names
from deepfreeze.format.strict_json import DAMAGED

# The umask takes further permissions away. Files are never writable for everybody, although some batch systems start jobs with umask 000.
FILE_MODE = 0o664
DIRECTORY_MODE = 0o775
# Errors of a read by which disks and file systems report that bytes are lost.
_LOST = (errno.EIO, errno.EBADMSG, errno.EUCLEAN)
_FULL = (errno.ENOSPC, errno.EDQUOT)
# Errors of a call that the file system does not support.
_LACKING = (errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)


def sync_dir(path: Path) -> None:
    """Makes the renames and new names in a directory durable. OSError if the system refuses."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write(path: Path, data: bytes) -> None:
    """Writes a file with these bytes and fsyncs it. Its name is not durable before ``sync_dir`` of its directory. A symbolic link at
    ``path`` is not followed. OSError if the system refuses."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(fd, left) :]
        _naming_the_call("fsync", os.fsync, fd)
    finally:
        os.close(fd)


def replace(path: Path, data: bytes) -> None:
    """Writes a file durably, in place of the file at ``path``, if there is one. A reader sees the old bytes or the new ones, never a
    mixture. OSError if the system refuses: the old file is then as it was, or the new one is not known to be durable."""
    temporary = path.parent / names.temporary(path.name)
    try:
        write(temporary, data)
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    sync_dir(path.parent)


def probe(folder: Path) -> None:
    """Tries in ``folder`` what each commit does: writes a file, renames it, and makes the new name durable. The file is removed again.
    OSError, naming the call, if one fails. (os.access() would not do: it ignores read-only mounts on some systems, and says yes to
    root.)"""
    before, after = (folder / names.temporary(f"{names.RUN_FILE}.{names.new_id()}") for _ in range(2))
    try:
        write(before, b"\0")
        _naming_the_call("rename", os.rename, before, after)
        _naming_the_call("fsync of a directory", sync_dir, folder)
    finally:
        for path in (before, after):
            with contextlib.suppress(OSError):
                path.unlink()


def _naming_the_call(name: str, call: Callable[..., Any], *arguments: Any) -> None:
    """Makes a call. The message of its OSError begins with the call's ``name``: "fsync: No space left on device"."""
    try:
        call(*arguments)
    except OSError as error:
        raise OSError(error.errno, f"{name}: {error.strerror or error}") from error


def delete(path: Path) -> None:
    """Deletes a directory and all that is in it. Files that the system refuses to delete are left. Symbolic links are not followed."""
    if path.is_dir() and not path.is_symlink():
        # Errors are ignored: NFS keeps a deleted file while a process reads it, and the next start of a job tries again.
        shutil.rmtree(path, ignore_errors=True)


def refused(path: Path, error: OSError) -> RunError:
    """The error to raise if the system refuses to read or change ``path``."""
    todo = "check permissions, quota, free space and whether the file system is mounted read-only"
    if error.errno in _FULL:
        todo = "free space there, or ask for a larger quota, or choose another directory"
    elif error.errno in _LACKING:
        todo = "choose a directory on another file system: checkpoints are committed by rename and fsync"
    found = error.strerror or str(error)
    return RunError(where=path, expected="a directory that can be read and written", found=found, todo=todo)


def is_full(error: object) -> bool:
    """Whether the system has refused a change because there is no space, or no quota."""
    return isinstance(error, OSError) and error.errno in _FULL


def has_lost(error: OSError) -> bool:
    """Whether a file system reports by this error that it has lost bytes of the file. Other errors may be temporary, or may have nothing
    to do with the file's bytes."""
    return error.errno in _LOST


def unreadable(path: Path, error: OSError) -> Error:
    """The error to raise for a file that the system does not read: CorruptError if it has lost bytes of the file, else RunError."""
    if not has_lost(error):
        return refused(path, error)
    found = error.strerror or str(error)
    return CorruptError(where=path, expected="a file whose bytes can be read", found=found, todo=DAMAGED)
