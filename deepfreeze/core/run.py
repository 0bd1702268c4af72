"""A run: one training job's directory on the external store, and every change made to it from Python.

Renames are followed by an fsync of the directory: a rename that the store has not been told to keep may be undone by a
power failure, and would bring back what was just moved away.
"""

from __future__ import annotations

import errno
import hashlib
import itertools
import json
import os
import re
import shutil
import tempfile
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

import google_crc32c

from deepfreeze.core import names
from deepfreeze.core.errors import CorruptError, Error, NotFoundError, RunError
from deepfreeze.core.fields import DAMAGED, UPGRADE, Fields, parse_object, read_small
from deepfreeze.core.manifest import Manifest
from deepfreeze.core.structure import MAX_STRUCTURE, Structure

FORMAT = 1
MAX_RUN_FILE = 4096
# Never writable for everybody, whatever the umask (some batch systems start jobs with 000). The rest is the umask's.
FILE_MODE = 0o664
DIRECTORY_MODE = 0o775
# The end of run.json has one spelling, so that no byte of the file is uncovered.
_LAST_KEY = re.compile(rb', "crc32c": "([0-9a-f]{8})"\}\n\Z')
# What disks and file systems say of bytes that they have lost.
_LOST = (errno.EIO, errno.EBADMSG, errno.EUCLEAN)
_IDENTITY = "restore the file from a copy, or write it anew: its run_id is in every manifest.json of the run"
_STRUCTURE = (
    "the checkpoints that need this file can be read again once it is back: take it from a copy of the run, or from "
    "another run of the same program, where it has the same name"
)


@dataclass(frozen=True)
class Run:
    """An existing run directory. ``path`` is as the user gave it, ``created`` a time in UTC."""

    path: Path
    run_id: str
    created: str

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Run:
        """Opens a run for reading. NotFoundError if it is none, CorruptError if its run.json is damaged."""
        root = Path(path)
        file = root / names.RUN_FILE
        try:
            data = read_small(file, MAX_RUN_FILE)
        except (FileNotFoundError, NotADirectoryError):
            found = "no such directory" if not root.exists() else "a directory without one"
            if root.exists() and not root.is_dir():
                found = "a file"
            todo = "check the path: it is the directory that was given to deepfreeze.Checkpoint"
            raise NotFoundError(where=root, expected=f"a run, with {names.RUN_FILE}", found=found, todo=todo) from None
        except OSError as error:
            raise _refused(root, error) from error
        # Runs made before there was a checksum have none.
        tail = _LAST_KEY.search(data, max(0, len(data) - 32))
        actual = google_crc32c.value(data[: tail.start()]) if tail else 0
        if tail and int(tail[1], 16) != actual:
            expected = f"CRC32C {tail[1].decode()} of bytes 0 to {tail.start()}"
            raise CorruptError(where=file, expected=expected, found=f"{actual:08x}", todo=_IDENTITY)
        top = Fields(parse_object(data, file), file)
        top.version(FORMAT)
        top.keys("format", "run_id", "created", *(["crc32c"] if tail else []))
        return cls(path=root, run_id=top.hexadecimal("run_id", 32), created=top.time("created"))

    @classmethod
    def open_for_writing(cls, path: str | os.PathLike[str]) -> Run:
        """Opens a run, and makes it if need be. RunError if it has no parent, is a file, or can't be written, CorruptError
        if its run.json is damaged, or gone though there are checkpoints."""
        root = Path(path)
        try:
            root.mkdir(DIRECTORY_MODE)
            sync_dir(root.absolute().parent)
        except FileExistsError:
            if not root.is_dir():
                todo = "choose another path, or move that file away"
                raise RunError(where=root, expected="a directory or nothing", found="a file", todo=todo) from None
        except FileNotFoundError:
            parent = root.absolute().parent
            todo = f"make it first (mkdir -p {parent}), or correct the path"
            raise RunError(where=root, expected="an existing parent directory", found="none", todo=todo) from None
        except OSError as error:
            raise _refused(root, error) from error
        try:
            _probe(root)
            if not (root / names.RUN_FILE).exists():
                _refuse_lost_identity(root)
                _create(root)
        except OSError as error:
            raise _refused(root, error) from error
        return cls.open(root)

    def step_path(self, step: int) -> Path:
        """Where the committed checkpoint of ``step`` is, if there is one."""
        return self.path / names.step_dir(step)

    def partial_path(self, step: int, attempt: str) -> Path:
        """Where ``attempt`` writes the checkpoint of ``step``."""
        return self.path / names.partial_dir(step, attempt)

    def step_dirs(self) -> list[int]:
        """Steps that have a directory, valid or not, sorted."""
        return sorted(step for name in self._list() if (step := names.parse_step_dir(name)) is not None)

    def committed(self) -> list[int]:
        """Steps whose manifest is valid, sorted: all checkpoints that count."""
        steps = []
        for step in self.step_dirs():
            try:
                self.manifest(step)
            except Error:
                continue  # half-deleted, damaged, or somebody's copy: not a checkpoint of this run
            steps.append(step)
        return steps

    def manifest(self, step: int) -> Manifest:
        """The manifest of ``step``. NotFoundError if there is no such directory, CorruptError if it is not valid."""
        file = self.step_path(step) / names.MANIFEST_FILE
        try:
            manifest = Manifest.read(file)
        except (FileNotFoundError, NotADirectoryError):
            if os.path.lexists(self.step_path(step)):
                todo = "this directory is no checkpoint: use another step"
                raise CorruptError(where=file, expected="a manifest", found="none", todo=todo) from None
            raise self._no_such(step) from None
        except OSError as error:
            raise unreadable(file, error) from error
        if (manifest.step, manifest.run_id) != (step, self.run_id):
            expected, found = f"step {step} of run {self.run_id}", f"step {manifest.step} of run {manifest.run_id}"
            todo = "it belongs elsewhere: move the directory back to where it came from"
            raise CorruptError(where=file, expected=expected, found=found, todo=todo)
        return manifest

    def invalid(self) -> dict[int, CorruptError]:
        """What is wrong with every step directory that has no valid manifest, by step, sorted. Raises what is no damage:
        RunError if a manifest can't be read, CorruptError if a newer version of DeepFreeze wrote it."""
        found = {}
        for step in self.step_dirs():
            try:
                self.manifest(step)
            except NotFoundError:
                continue  # deleted since it was listed
            except CorruptError as error:
                if error.todo == UPGRADE:  # its checksum is right
                    raise
                found[step] = error.with_traceback(None)
        return found

    def damaged(self) -> list[tuple[int, str | None]]:
        """(step, attempt) of every checkpoint that was moved below ``damaged/``, sorted by step; attempt None if unknown."""
        try:
            listed = os.listdir(self.path / names.DAMAGED_DIR)
        except OSError:
            return []
        found = [parsed for name in listed if (parsed := names.parse_damaged_dir(name)) is not None]
        return sorted(found, key=lambda one: (one[0], one[1] or ""))

    def partials(self) -> list[tuple[int, str]]:
        """(step, attempt) of every partial directory, sorted."""
        return sorted(found for name in self._list() if (found := names.parse_partial_dir(name)) is not None)

    def store_structure(self, structure: Structure) -> Path:
        """Writes ``structures/HASH.json`` durably, if it is not there yet; returns its path. RunError if refused."""
        folder = self.path / names.STRUCTURES_DIR
        file = folder / names.structure_file(structure.hash)
        data = structure.to_bytes()
        try:
            if file.is_file() and file.read_bytes() == data:
                return file
            if not folder.is_dir():
                folder.mkdir(DIRECTORY_MODE, exist_ok=True)
                sync_dir(self.path)
            temporary = folder / names.temporary(file.name)
            _write(temporary, data)
            os.replace(temporary, file)
            sync_dir(folder)
        except OSError as error:
            raise _refused(file, error) from error
        return file

    def structure(self, structure_hash: str) -> Structure:
        """Reads a structure. CorruptError if it is missing or its bytes don't have this hash."""
        file = self.path / names.STRUCTURES_DIR / names.structure_file(structure_hash)
        try:
            data = read_small(file, MAX_STRUCTURE)
        except FileNotFoundError:
            expected = "the names and places of all tensors"
            raise CorruptError(where=file, expected=expected, found="no such file", todo=_STRUCTURE) from None
        except OSError as error:
            raise unreadable(file, error) from error
        actual = hashlib.sha256(data).hexdigest()
        if actual != structure_hash:
            raise CorruptError(where=file, expected=f"SHA-256 {structure_hash}", found=actual, todo=_STRUCTURE)
        return Structure.from_bytes(data, file)

    def abandon(self, step: int, attempt: str) -> Path:
        """Moves a committed checkpoint below ``abandoned/`` and returns its new path. RunError if refused."""
        folder = self.path / names.ABANDONED_DIR
        try:
            return self._move(step, folder / names.abandoned_dir(step, attempt))
        except FileNotFoundError as error:
            raise _refused(self.step_path(step), error) from error

    def quarantine(self, step: int) -> Path | None:
        """Moves a damaged checkpoint below ``damaged/`` and returns its new path; None if it is gone. RunError if refused.

        For the holder of the run's lock. What was moved there before is kept.
        """
        try:
            attempt = self.manifest(step).attempt
        except Error:
            attempt = None
        folder = self.path / names.DAMAGED_DIR
        targets = (folder / names.damaged_dir(step, attempt, number) for number in itertools.count(1))
        target = next(path for path in targets if not os.path.lexists(path))
        try:
            return self._move(step, target)
        except FileNotFoundError:
            return None

    def _move(self, step: int, target: Path) -> Path:
        """FileNotFoundError if the checkpoint is gone."""
        try:
            target.parent.mkdir(DIRECTORY_MODE, exist_ok=True)
            os.rename(self.step_path(step), target)
            sync_dir(target.parent)
            sync_dir(self.path)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise _refused(target, error) from error
        return target

    def clear(self, partial: tuple[int, str]) -> None:
        """Deletes a partial directory, by way of the trash. RunError if it can't be renamed."""
        step, attempt = partial
        trash = self.path / names.trash_dir(step, attempt)
        _delete(trash)
        try:
            os.rename(self.partial_path(step, attempt), trash)
            sync_dir(self.path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise _refused(self.partial_path(step, attempt), error) from error
        _delete(trash)

    def clear_trash(self) -> None:
        """Deletes what an earlier deletion left behind. What can't be deleted stays for the next start."""
        for name in self._list():
            if names.parse_trash_dir(name) is not None:
                _delete(self.path / name)

    def _list(self) -> list[str]:
        try:
            return os.listdir(self.path)
        except OSError as error:
            raise _refused(self.path, error) from error

    def _no_such(self, step: int) -> NotFoundError:
        steps = self.committed()
        found = "steps " + ", ".join(map(str, steps[-10:])) if steps else "no checkpoint"
        todo = "choose one of these" if steps else "let the job run until its first checkpoint is committed"
        return NotFoundError(where=self.path, expected=f"a checkpoint of step {step}", found=found, todo=todo)


def sync_dir(path: Path) -> None:
    """Makes the renames and new names in a directory durable. OSError if refused."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def unreadable(path: Path, error: OSError) -> Error:
    """What to raise for a file that the system did not read: CorruptError if it has lost bytes of it, else RunError."""
    if error.errno not in _LOST:
        return _refused(path, error)
    found = error.strerror or str(error)
    return CorruptError(where=path, expected="a file whose bytes can be read", found=found, todo=DAMAGED)


def utc_now() -> str:
    """The time, in UTC, to the second, like 2026-11-21T03:35:58Z."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def _probe(root: Path) -> None:
    # A write and not os.access(): that one ignores read-only mounts on some systems, and root passes every bit.
    with tempfile.TemporaryFile(dir=root) as file:
        file.write(b"\0")
        file.flush()
        os.fsync(file.fileno())


def _refuse_lost_identity(root: Path) -> None:
    """A new id would make every checkpoint that is there another run's."""
    steps = [name for name in os.listdir(root) if names.parse_step_dir(name) is not None]
    if steps:
        expected = f"the identity of a run with {len(steps)} checkpoints"
        raise CorruptError(where=root / names.RUN_FILE, expected=expected, found="no such file", todo=_IDENTITY)


def _create(root: Path) -> None:
    value = {"format": FORMAT, "run_id": names.new_id(), "created": utc_now()}
    text = json.dumps(value).removesuffix("}").encode()
    text += f', "crc32c": "{google_crc32c.value(text):08x}"}}\n'.encode()
    # Two jobs may start in one new directory at once. The run has the id that was linked first, for both of them.
    temporary = root / names.temporary(f"{names.RUN_FILE}.{value['run_id']}")
    target = root / names.RUN_FILE
    _write(temporary, text)
    try:
        os.link(temporary, target)
    except FileExistsError:
        pass
    except OSError:
        os.replace(temporary, target)  # a file system without hard links
    temporary.unlink(missing_ok=True)
    sync_dir(root)


def _write(path: Path, data: bytes) -> None:
    with open(path, "wb", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW, FILE_MODE)) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        # Errors are ignored: NFS keeps a deleted file that someone reads, and the next start tries again.
        shutil.rmtree(path, ignore_errors=True)


def _refused(path: Path, error: OSError) -> RunError:
    todo = "check permissions, quota, free space and whether the file system is mounted read-only"
    found = error.strerror or str(error)
    return RunError(where=path, expected="a directory that can be read and written", found=found, todo=todo)
