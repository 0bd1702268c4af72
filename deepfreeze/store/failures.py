"""The errors for files that a store refuses to read or to change."""

from __future__ import annotations

import errno
from pathlib import Path

from deepfreeze.errors import CorruptError, Error, RunError
from deepfreeze.format.strict_json import DAMAGED
from deepfreeze.store.durable import LinkError

# Errors of a read by which disks and file systems report that bytes are lost.
_LOST = (errno.EIO, errno.EBADMSG, errno.EUCLEAN)
_FULL = (errno.ENOSPC, errno.EDQUOT)
# Errors of a call that the file system does not support.
_LACKING = (errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)
_NO_LINK = "remove it if no job is running here, and find out who made it: it was not followed"


def refused(path: Path, error: OSError) -> RunError:
    """The error to raise if the system refuses to read or change ``path``. If a link is in the way, the error names the link."""
    if isinstance(error, LinkError):
        return RunError(where=error.filename, expected="a folder, or nothing", found="a symbolic link", todo=_NO_LINK)
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
