"""Opens and reads files of a run, which another program or user may have changed: symbolic links are not followed, a pipe does not block
the reader, and no more bytes are read than the format allows."""

from __future__ import annotations

import errno
import os
import stat

from deepfreeze.errors import CorruptError
from deepfreeze.format.strict_json import DAMAGED


def open_file(path: str | os.PathLike[str], name: str | None = None, dir_fd: int | None = None) -> int:
    """Opens a file for reading and returns its descriptor. ``name``: of the file in the directory ``dir_fd``, if one is given; ``path`` is
    for messages then. OSError if the file can't be opened, CorruptError if it is no regular file: a symbolic link, a directory, a
    device or a pipe."""
    refused = CorruptError(
        where=path, expected="a regular file", found="a link, directory, device or pipe", todo=DAMAGED
    )
    try:
        fd = os.open(name or path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=dir_fd)
    except OSError as error:
        # The errors for a symbolic link, a socket and a device without a driver.
        if error.errno not in (errno.ELOOP, errno.ENXIO, errno.ENODEV):
            raise
        raise refused from error
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise refused
    return fd


def read_small(path: str | os.PathLike[str], limit: int) -> bytes:
    """All bytes of a file. Raises what ``open_file`` and ``read_all`` do."""
    return read_all(open_file(path), limit, path)


def read_all(fd: int, limit: int, path: str | os.PathLike[str]) -> bytes:
    """All bytes of an open file, which is closed. ``path``: for messages. OSError if the system does not read it, CorruptError if the file
    has more than ``limit`` bytes."""
    with open(fd, "rb") as file:
        size = os.fstat(fd).st_size
        # One byte more than the file's size, to notice a file that grows. Asking for ``limit`` bytes would allocate them.
        data = b"" if size > limit else file.read(size + 1)
    size = max(size, len(data))
    if size > limit:
        raise CorruptError(where=path, expected=f"at most {limit} bytes", found=f"{size} bytes", todo=DAMAGED)
    return data
