"""Opens and reads files of a run as a reader must: neither following a link, nor waiting at a pipe, nor reading without a bound."""

from __future__ import annotations

import errno
import os
import stat

from deepfreeze.errors import CorruptError
from deepfreeze.format.strict_json import DAMAGED


def open_file(path: str | os.PathLike[str], dir_fd: int | None = None) -> int:
    """A descriptor of a file, to be read. OSError if it can't be opened, CorruptError if it is a symbolic link, a directory,
    a device, or a pipe, at which an open would wait for ever."""
    refused = CorruptError(where=path, expected="a file", found="something else", todo=DAMAGED)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=dir_fd)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENXIO, errno.ENODEV):  # a link, a socket, a device without a driver
            raise
        raise refused from error
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise refused
    return fd


def read_small(path: str | os.PathLike[str], limit: int, dir_fd: int | None = None) -> bytes:
    """The whole of a file, opened by ``open_file``. CorruptError also if it has more than ``limit`` bytes."""
    with open(open_file(path, dir_fd), "rb") as file:
        found = os.fstat(file.fileno()).st_size
        # One byte more than there is shows a file that grows; memory for all that was asked for is taken first.
        data = b"" if found > limit else file.read(found + 1)
    if max(found, len(data)) > limit:
        found = max(found, len(data))
        raise CorruptError(where=path, expected=f"at most {limit} bytes", found=f"{found} bytes", todo=DAMAGED)
    return data
