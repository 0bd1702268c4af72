"""Files and directories that stay: what is written, fsynced, renamed and deleted in a run, and what to say if the system refuses.

Renames are followed by an fsync of the directory: a rename that the store has not been told to keep may be undone by a
power failure, and would bring back what was just moved away.
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

# Never writable for everybody, whatever the umask (some batch systems start jobs with 000). The rest is the umask's.
FILE_MODE = 0o664
DIRECTORY_MODE = 0o775
# What disks and file systems say of bytes that they have lost.
_LOST = (errno.EIO, errno.EBADMSG, errno.EUCLEAN)
_FULL = (errno.ENOSPC, errno.EDQUOT)
# What file systems say to a call that they don't have.
_LACKING = (errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)


def sync_dir(path: Path) -> None:
    """Makes the renames and new names in a directory durable. OSError if refused."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write(path: Path, data: bytes) -> None:
    """A new file with these bytes, durable but for its name; follows no link. OSError if refused."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(fd, left) :]
        _named("fsync", os.fsync, fd)
    finally:
        os.close(fd)


def replace(path: Path, data: bytes) -> None:
    """As ``write``, in place of what is there; whoever looks sees the old bytes or the new ones. OSError if refused."""
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
    """OSError, naming the call, unless a file can be written there, renamed, and its name made durable: what a commit does.
    A write and not os.access(): that one ignores read-only mounts on some systems, and root passes every bit."""
    before, after = (folder / names.temporary(f"{names.RUN_FILE}.{names.new_id()}") for _ in range(2))
    try:
        write(before, b"\0")
        _named("rename", os.rename, before, after)
        _named("fsync of a directory", sync_dir, folder)
    finally:
        for path in (before, after):
            with contextlib.suppress(OSError):
                path.unlink()


def _named(what: str, call: Callable[..., Any], *arguments: Any) -> None:
    try:
        call(*arguments)
    except OSError as error:
        raise OSError(error.errno, f"{what}: {error.strerror or error}") from error


def delete(path: Path) -> None:
    """A directory and all in it, as far as the system lets it go; follows no link."""
    if path.is_dir() and not path.is_symlink():
        # Errors are ignored: NFS keeps a deleted file that someone reads, and the next start tries again.
        shutil.rmtree(path, ignore_errors=True)


def refused(path: Path, error: OSError) -> RunError:
    """What to raise for a change that the system did not make."""
    todo = "check permissions, quota, free space and whether the file system is mounted read-only"
    if error.errno in _FULL:
        todo = "free space there, or ask for a larger quota, or choose another directory"
    elif error.errno in _LACKING:
        todo = "choose a directory on another file system: checkpoints are committed by rename and fsync"
    found = error.strerror or str(error)
    return RunError(where=path, expected="a directory that can be read and written", found=found, todo=todo)


def has_lost(error: OSError) -> bool:
    """True for an error by which a file system says that it has lost bytes. Other errors may pass, or say nothing of the file."""
    return error.errno in _LOST


def unreadable(path: Path, error: OSError) -> Error:
    """What to raise for a file that the system did not read: CorruptError if it has lost bytes of it, else RunError."""
    if not has_lost(error):
        return refused(path, error)
    found = error.strerror or str(error)
    return CorruptError(where=path, expected="a file whose bytes can be read", found=found, todo=DAMAGED)
