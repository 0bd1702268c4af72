"""Writes a file that gets its name only when it is whole and durable. Until then nothing is seen at the path."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from deepfreeze.errors import Error, OptionError, RunError
from deepfreeze.store.durable import FILE_MODE

# Errors of file systems that don't support files without a name (O_TMPFILE).
_NO_UNNAMED = (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL)
# Errors of file systems that don't support hard links.
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
_OWN_FILES = "/proc/self/fd"  # links to the open files of this process; a file without a name gets one through them


class Draft:
    """A file that is being written. Usage: ``with Draft(target, overwrite) as draft``, write to ``draft.file``, then ``draft.publish()``. A
    block that ends without ``publish`` deletes the draft.

    On file systems with O_TMPFILE the draft has no name, and is gone when its process ends, in whatever way. On others the draft is
    called ``.NAME.XXXXXXXX.tmp``, beside the target. It also has such a name for the moment before it replaces another file. Only a
    SIGKILL or a loss of power while the draft has that name leaves it behind; it does no harm there. The file with the target's name
    is always whole.
    """

    def __init__(self, target: Path, overwrite: bool) -> None:
        """Opens ``file`` for writing and reading. OptionError if there is a directory at ``target``, or a file and not ``overwrite``;
        RunError if the target's directory can't be written to."""
        self.target = target
        self._overwrite = overwrite
        if target.is_dir() or (os.path.lexists(target) and not overwrite):
            raise self._taken()
        self._folder = -1
        try:
            self._folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fd, self._temporary = _open(self._folder, target.name)
        except OSError as error:
            if self._folder >= 0:
                os.close(self._folder)
            raise self._refused(error) from error
        self.file: BinaryIO = os.fdopen(fd, "w+b", buffering=1 << 20)

    def clear(self) -> None:
        """Deletes what was written so far."""
        self.file.seek(0)
        self.file.truncate()

    def publish(self) -> None:
        """Makes the file durable and gives it the target's name. OptionError if a file has been made there since the draft was opened,
        and not ``overwrite``; OSError if the system refuses, which the end of the ``with`` block turns into RunError."""
        self.file.flush()
        os.fsync(self.file.fileno())
        if self._overwrite:
            # A file without a name can't replace another file: it first gets a temporary name.
            if self._temporary is None:
                name = _temporary(self.target.name)
                self._link(name)
                self._temporary = name
            self._move()
        else:
            try:
                self._link(self.target.name)
            except FileExistsError:
                raise self._taken() from None
            except OSError as error:
                if self._temporary is None or error.errno not in _NO_LINKS:
                    raise
                if os.path.lexists(self.target):
                    raise self._taken() from None
                self._move()
        os.fsync(self._folder)

    def __enter__(self) -> Draft:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self.file.close()  # close writes what is left in the buffer; an earlier write may have failed, and would again
        if self._temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._temporary, dir_fd=self._folder)
        os.close(self._folder)
        if isinstance(value, OSError) and not isinstance(value, Error):
            raise self._refused(value) from value

    def _link(self, name: str) -> None:
        """Gives the draft a name, or a second one if it has a temporary name. FileExistsError if there is a file of that name."""
        folder = self._folder
        if self._temporary is None:
            source = f"{_OWN_FILES}/{self.file.fileno()}"
            os.link(
                source, name, dst_dir_fd=folder
            )  # with a dir_fd Python calls linkat(2), which follows the link in /proc
        else:
            os.link(self._temporary, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)

    def _move(self) -> None:
        """Renames the draft from its temporary name to the target's."""
        assert self._temporary is not None
        os.replace(self._temporary, self.target.name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        self._temporary = None

    def _taken(self) -> OptionError:
        found = "a directory" if self.target.is_dir() else "a file"
        todo = "choose another path"
        if found == "a file":
            todo = "choose another path, or say that it may be replaced (overwrite=True, --overwrite)"
        return OptionError(where=self.target, expected="nothing there", found=found, todo=todo)

    def _refused(self, error: OSError) -> RunError:
        todo = "check that its directory exists, permissions, quota and free space"
        found = error.strerror or str(error)
        return RunError(where=self.target, expected="a file that can be written", found=found, todo=todo)


def _open(folder: int, name: str) -> tuple[int, str | None]:
    """Opens a new file in a directory. Returns (descriptor, name); name None if the file system supports files without a name."""
    flags = os.O_RDWR | os.O_CLOEXEC
    if os.path.isdir(_OWN_FILES):
        try:
            return os.open(".", flags | os.O_TMPFILE, FILE_MODE, dir_fd=folder), None
        except OSError as error:
            if error.errno not in _NO_UNNAMED:
                raise
    temporary = _temporary(name)
    return os.open(temporary, flags | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, FILE_MODE, dir_fd=folder), temporary


def _temporary(name: str) -> str:
    return f".{name}.{secrets.token_hex(4)}.tmp"
