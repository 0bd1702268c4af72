"""A run as a directory of a file system. The engine writes to no other store."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from deepfreeze.errors import CorruptError, EngineError, RunError
from deepfreeze.format import names
from deepfreeze.store import durable, files, granules, parents
from deepfreeze.store.durable import DIRECTORY_MODE, FILE_MODE
from deepfreeze.store.failures import refused
from deepfreeze.store.granules import Granules
from deepfreeze.store.lock import Lock
from deepfreeze.store.posix_ranges import PosixRanges
from deepfreeze.store.store import Store

# The longest path, relative to the run, of a file that is written in a run.
_LONGEST_PATH = "/".join(
    ["", names.partial_dir(names.MAX_STEP, "0" * 32), names.temporary(names.record_file(names.MAX_RANK))]
)
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


@dataclass(frozen=True)
class PosixStore(Store):
    """A directory, or a link to one. Links inside the run are not followed: what lies behind a link is not the run's.

    A folder that is a link is found when the run's location is made, and before each change in a folder. Somebody who may write in the
    run can put a link there after that look."""

    path: Path

    @property
    def directory(self) -> Path:
        return self.path

    def granules(self) -> Granules:
        return granules.of_run(self.path)

    # --- reading

    def list(self, folder: str = "") -> list[str]:
        if not folder:
            return os.listdir(self.path)
        fd = os.open(self.where(folder), _FOLDER)
        try:
            return os.listdir(fd)
        finally:
            os.close(fd)

    def has(self, name: str) -> bool:
        return os.path.lexists(self.where(name)) if name else self.path.exists()

    def read(self, name: str, limit: int) -> bytes:
        folder, _, base = name.rpartition("/")
        where = self.where(name)
        if not folder:
            return files.read_all(files.open_file(where), limit, where)
        fd = os.open(self.where(folder), _FOLDER)
        try:
            return files.read_all(files.open_file(where, base, fd), limit, where)
        finally:
            os.close(fd)

    def open(self, name: str) -> PosixRanges:
        # The folder was not a link when its manifest was read, and a look costs a parallel file system's metadata server a call.
        return PosixRanges(files.open_file(self.where(name)), self.where(name))

    def nbytes(self, folder: str) -> int | None:
        path = self.where(folder)
        if path.is_symlink() or not path.is_dir():
            return None
        total = 0
        for inner, _, found in os.walk(path):
            for name in found:
                with contextlib.suppress(OSError):  # deleted by another process meanwhile
                    total += os.lstat(os.path.join(inner, name)).st_size
        return total

    # --- small files

    def put(self, name: str, data: bytes) -> None:
        file = self.where(name)
        self._make_folder_of(file)
        if _has_bytes(file, data):
            durable.sync_dir(file.parent)  # the process that wrote it may have been killed before its own sync
        else:
            durable.replace(file, data)

    def create(self, name: str, data: bytes) -> bool:
        file = self.where(name)
        self._make_folder_of(file)
        # No name of a tag, which has no dot first.
        temporary = file.parent / names.temporary(f".{file.name}.{names.new_id()}")
        try:
            durable.write(temporary, data)
            try:
                os.link(temporary, file)  # fails for the second of two processes
            except FileExistsError:
                return False
            except OSError:  # a file system without hard links
                if os.path.lexists(file):
                    return False
                os.replace(temporary, file)
        finally:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        durable.sync_dir(file.parent)
        return True

    def remove(self, name: str) -> None:
        file = self.where(name)
        self._refuse_link_to_folder_of(file)
        os.unlink(file)
        durable.sync_dir(file.parent)

    def append(self, name: str) -> Appending:
        file = self.where(name)
        if file.parent != self.path:
            durable.make_folder(file.parent)
        return Appending(file)

    # --- checkpoints

    def publish(self, step: int, attempt: str) -> None:
        from deepfreeze.engine.backends import table  # reading a run needs no engine
        from deepfreeze.engine.faults import EngineFault
        from deepfreeze.engine.records import CORRUPT, DIVERGED, INCOMPLETE

        where = self.where(names.partial_dir(step, attempt))
        try:
            table.rescue().commit(os.fspath(self.path), step, attempt)
        except EngineFault as fault:
            damaged = fault.code in (CORRUPT, INCOMPLETE, DIVERGED)
            todo = "mend what the message names and start again: nothing was deleted"
            raise (CorruptError if damaged else EngineError)(
                where=where, expected="to commit a dead attempt's checkpoint", found=str(fault), todo=todo
            ) from fault

    def abandon(self, folder: str, to: str) -> None:
        target = self.where(to)
        self._make_folder_of(target)
        os.rename(self.where(folder), target)
        durable.sync_dir(target.parent)
        durable.sync_dir(self.path)

    def discard(self, folder: str, step: int) -> bool:
        path, trash = self.where(folder), self.path / names.trash_dir(step, names.new_id())
        self._refuse_link_to_folder_of(path)
        try:
            os.rename(path, trash)
        except FileNotFoundError:
            return True
        if path.parent != self.path:
            durable.sync_dir(path.parent)
        durable.sync_dir(self.path)
        durable.delete(trash)
        return not os.path.lexists(trash)

    def sweep(self) -> None:
        for name in os.listdir(self.path):
            if names.parse_trash_dir(name) is not None:
                durable.delete(self.path / name)

    # --- the run's location

    def make_above(self) -> Sequence[Path]:
        self._refuse_too_long()
        return parents.make(self.path)

    def unmake_above(self, made: Sequence[Path]) -> None:
        parents.unmake(made)

    def refresh(self) -> None:
        parents.look_anew(self.path)

    def make(self) -> bool:
        root, made = self.path, False
        try:
            os.mkdir(root, DIRECTORY_MODE)
            made = True
        except FileExistsError:
            if not root.is_dir():
                raise parents.in_the_way(root, root) from None
        except OSError as error:
            raise refused(root, error) from error
        try:
            # An existing run is synced too: the job that made it may have been killed before its own sync. An error counts only for a
            # new run, because the parent directory of an old one may be one that this user can't open.
            with contextlib.nullcontext() if made else contextlib.suppress(OSError):
                durable.sync_dir(root.absolute().parent)
            for folder in () if made else names.RUN_DIRS:
                durable.refuse_link(root / folder)
            durable.probe(root)
        except OSError as error:
            if made:
                self.unmake()
            raise refused(root, error) from error
        return made

    def unmake(self) -> None:
        with contextlib.suppress(OSError):
            os.rmdir(self.path)

    def lock(self, world_size: int = 1) -> Lock:
        return Lock.acquire(self.path, world_size)

    def _refuse_too_long(self) -> None:
        """RunError if the paths of the run's files would be longer than the system allows: the first checkpoint would fail."""
        nbytes = len(os.fsencode(self.path.absolute()))
        most = os.pathconf("/", "PC_PATH_MAX") - 1 - len(_LONGEST_PATH)
        if nbytes > most:
            expected, found = (
                f"a path of at most {most} bytes",
                f"{nbytes} bytes, which leaves too little for its files",
            )
            raise RunError(where=self.path, expected=expected, found=found, todo="choose a shorter path")

    def _make_folder_of(self, file: Path) -> None:
        """Makes the folder of a file, if it is missing, and makes its name durable. An existing folder's name is synced too: the process
        that made the folder may have been killed before its own sync."""
        if file.parent != self.path:
            durable.make_folder(file.parent)
            durable.sync_dir(self.path)

    def _refuse_link_to_folder_of(self, file: Path) -> None:
        if file.parent != self.path:  # which may be a link itself
            durable.refuse_link(file.parent)


class Appending:
    """A new file that is written at its end."""

    def __init__(self, file: Path) -> None:
        # A link is not followed: with O_EXCL the system refuses it.
        self._fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, FILE_MODE)

    def write(self, data: bytes) -> int:
        return os.write(self._fd, data)

    def close(self) -> None:
        os.close(self._fd)


def _has_bytes(file: Path, data: bytes) -> bool:
    """True if the file is there with these bytes. A link to such a file does not count: no reader follows it."""
    try:
        return files.read_small(file, len(data)) == data
    except (OSError, CorruptError):
        return False
