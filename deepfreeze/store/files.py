"""Opens and reads files of a run, which another program or user may have changed: symbolic links are not followed, a pipe does not block
the reader, and no more bytes are read than the format allows."""

from __future__ import annotations

import errno
import os
import stat

from deepfreeze.errors import CorruptError
from deepfreeze.format.strict_json import DAMAGED


def open_file(path: str | os.PathLike[str], dir_fd: int | None = None) -> int:
    """Opens a file for reading and returns its descriptor. ``path`` is relative to the directory ``dir_fd``, if one is given. OSError
    if the file can't be opened, CorruptError if it is no regular file: a symbolic link, a directory, a device or a pipe."""
    refused = CorruptError(
        where=path, expected="a regular file", found="a link, directory, device or pipe", todo=DAMAGED
    )
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=dir_fd)
    except OSError as error:
        # The errors for a symbolic link, a socket and a device without a driver.
        if error.errno not in (errno.ELOOP, errno.ENXIO, errno.ENODEV):
            raise
        raise refused from error
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise refused
    return fd


def read_small(path: str | os.PathLike[str], limit: int, dir_fd: int | None = None) -> bytes:
    """All bytes of a file, opened by ``open_file``. CorruptError also if the file has more than ``limit`` bytes."""
    with open(open_file(path, dir_fd), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        # One byte more than the file's size, to notice a file that grows. Asking for ``limit`` bytes would allocate them.
        data = b"" if size > limit else file.read(size + 1)
    size = max(size, len(data))
    if size > limit:
        raise CorruptError(where=path, expected=f"at most {limit} bytes", found=f"{size} bytes", todo=DAMAGED)
    return data
