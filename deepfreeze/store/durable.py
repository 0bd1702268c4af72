"""Durable changes of files and directories on a file system: write, fsync, rename, delete.

An fsync of the directory follows each rename: without it a loss of power may undo the rename, and bring back the file that was just
moved away.

Nothing is written through a link that somebody has put into a run: what is behind it is not the run's. A file that is written is a new
one, which no other name leads to, and a folder that is a symbolic link is refused.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from deepfreeze.format import names

# The umask takes further permissions away. Files are never writable for everybody, although some batch systems start jobs with umask 000.
FILE_MODE = 0o664
DIRECTORY_MODE = 0o775


class LinkError(OSError):
    """A symbolic link is in the place of a run's folder. ``filename``: the link."""


def sync_dir(path: Path) -> None:
    """Makes the renames and new names in a directory durable. OSError if the system refuses."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_folder(path: Path) -> None:
    """Makes a folder, unless it is there. Its name is not durable before ``sync_dir`` of the directory above. OSError if the system
    refuses, or something else has this name; LinkError if that is a symbolic link."""
    try:
        os.mkdir(path, DIRECTORY_MODE)
    except FileExistsError:
        refuse_link(path)
        if not path.is_dir():
            raise


def refuse_link(path: Path) -> None:
    """LinkError if a symbolic link is at ``path``, wherever it leads."""
    if path.is_symlink():
        raise LinkError(errno.ELOOP, "a symbolic link", os.fspath(path))


def write(path: Path, data: bytes) -> None:
    """Writes a new file with these bytes and fsyncs it. Its name is not durable before ``sync_dir`` of its directory. What has this name
    loses it: a file that a killed process has left, or a link, whose other file stays as it is. OSError if the system refuses."""
    fd = _open_new(path)
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(fd, left) :]
        _naming_the_call("fsync", os.fsync, fd)
    finally:
        os.close(fd)


def _open_new(path: Path) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC  # with O_EXCL no symbolic link is followed
    try:
        return os.open(path, flags, FILE_MODE)
    except FileExistsError:
        os.unlink(path)
        return os.open(path, flags, FILE_MODE)


def replace(path: Path, data: bytes) -> None:
    """Writes a file durably, in place of the file at ``path``, if there is one. A reader sees the old bytes or the new ones, never a
    mixture. OSError if the system refuses: the old file is then as it was, or the new one is not known to be durable."""
    temporary = path.parent / names.temporary(path.name)
    try:
        write(temporary, data)
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
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
                os.unlink(path)


def _naming_the_call(name: str, call: Callable[..., Any], *arguments: Any) -> None:
    """Makes a call. The message of its OSError begins with the call's ``name``: "fsync: No space left on device"."""
    try:
        call(*arguments)
    except OSError as error:
        raise OSError(error.errno, f"{name}: {error.strerror or error}") from error


def delete(path: Path) -> None:
    """Deletes a directory and all that is in it, or whatever else has this name. What the system refuses to delete is left. Symbolic
    links are deleted themselves, and not followed."""
    # Errors are ignored: NFS keeps a deleted file while a process reads it, and the next start of a job tries again.
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            os.unlink(path)
