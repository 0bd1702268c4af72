"""The changes that Python makes to a run. Each change is durable when its method returns, and a directory is renamed before it is deleted.
(The engine makes the other changes: it writes checkpoints, commits them, and deletes those that retention does not keep.)"""

from __future__ import annotations

import contextlib
import itertools
import os
from dataclasses import replace
from pathlib import Path

from deepfreeze.errors import CorruptError, Error, RunError
from deepfreeze.format import names
from deepfreeze.format.model_config import ModelConfig
from deepfreeze.format.run_file import LOST, Parent, RunFile, utc_now
from deepfreeze.format.structure import Structure
from deepfreeze.store import durable
from deepfreeze.store.durable import DIRECTORY_MODE, refused, sync_dir
from deepfreeze.store.run import Run, directory

# The longest path, relative to the run, of a file that is written in a run.
_LONGEST_PATH = "/".join(
    ["", names.partial_dir(names.MAX_STEP, "0" * 32), names.temporary(names.record_file(names.MAX_RANK))]
)


def _refuse_too_long(root: Path) -> None:
    """RunError if the paths of the run's files would be longer than the system allows: the first checkpoint would fail."""
    nbytes, most = len(os.fsencode(root.absolute())), os.pathconf("/", "PC_PATH_MAX") - 1 - len(_LONGEST_PATH)
    if nbytes > most:
        expected, found = f"a path of at most {most} bytes", f"{nbytes} bytes, which leaves too little for its files"
        raise RunError(where=root, expected=expected, found=found, todo="choose a shorter path")


class WritableRun(Run):
    """A run that may be changed. The caller of a method holds the run's lock, unless the method says otherwise."""

    @classmethod
    def open_or_make(cls, path: str | os.PathLike[str]) -> WritableRun:
        """Opens a run, and makes its directory and run.json if they are missing. The caller holds no lock yet: the lock's file lies in
        the run. Raises OptionError if ``path`` is no path; RunError if the parent directory is missing, ``path`` is a file or too long,
        or the system refuses; CorruptError if run.json is damaged, or is missing although there are checkpoints. If a directory that
        this call has made can't be used, the call removes it again."""
        root = directory(path)
        _refuse_too_long(root)
        made = False
        try:
            root.mkdir(DIRECTORY_MODE)
            made = True
        except FileExistsError:
            if not root.is_dir():
                todo = "choose another path, or move that file away"
                raise RunError(where=root, expected="a directory or nothing", found="a file", todo=todo) from None
        except FileNotFoundError:
            parent = root.absolute().parent
            todo = f"make it first (mkdir -p {parent}), or correct the path"
            raise RunError(where=root, expected="an existing parent directory", found="none", todo=todo) from None
        except OSError as error:
            raise refused(root, error) from error
        try:
            # An existing run is synced too: the job that made it may have been killed before its own sync. An error counts only for a
            # new run, because the parent directory of an old one may be one that this user can't open.
            with contextlib.nullcontext() if made else contextlib.suppress(OSError):
                sync_dir(root.absolute().parent)
            durable.probe(root)
            _give_identity(root)
        except OSError as error:
            if made:
                with contextlib.suppress(OSError):
                    root.rmdir()
            raise refused(root, error) from error
        return cls.open(root)

    def set_parent(self, parent: Parent | None) -> WritableRun:
        """Writes into run.json which checkpoint the run was seeded from, and returns the changed run. RunError if the system refuses."""
        if parent == self.parent:
            return self
        file = self.path / names.RUN_FILE
        try:
            durable.replace(file, RunFile(self.run_id, self.created, parent).to_bytes())
        except OSError as error:
            raise refused(file, error) from error
        return replace(self, parent=parent)

    def claim(self, attempt: str) -> str:
        """Writes the attempt's id into ``RUN/owner``, and returns the id. An earlier attempt that still lives commits and deletes nothing
        more in this run. RunError if the system refuses."""
        file = self.path / names.OWNER_FILE
        try:
            durable.replace(file, f"{attempt}\n".encode())
        except OSError as error:
            raise refused(file, error) from error
        return attempt

    def store_structure(self, structure: Structure) -> Path:
        """Writes ``structures/HASH.json``, if it is not there yet, and returns its path. RunError if the system refuses."""
        return self._store(
            self.path / names.STRUCTURES_DIR / names.structure_file(structure.hash), structure.to_bytes()
        )

    def store_config(self, config: ModelConfig) -> Path:
        """Writes ``configs/ATTEMPT.json`` and returns its path. RunError if the system refuses."""
        return self._store(self.path / names.CONFIGS_DIR / names.config_file(config.attempt), config.to_bytes())

    def _store(self, file: Path, data: bytes) -> Path:
        """Writes a file in one of the run's folders, unless it is there with the same bytes."""
        folder = file.parent
        try:
            self._make(folder)
            if file.is_file() and file.read_bytes() == data:
                sync_dir(folder)  # the process that wrote it may have been killed before its own sync
            else:
                durable.replace(file, data)
        except OSError as error:
            raise refused(file, error) from error
        return file

    def abandon(self, step: int, attempt: str) -> Path:
        """Moves a committed checkpoint to ``abandoned/`` and returns its new path. RunError if the system refuses, or if there is no such
        checkpoint."""
        folder = self.path / names.ABANDONED_DIR
        try:
            return self._move(step, folder / names.abandoned_dir(step, attempt))
        except FileNotFoundError as error:
            raise refused(self.step_path(step), error) from error

    def quarantine(self, step: int) -> Path | None:
        """Moves a damaged checkpoint to ``damaged/`` and returns its new path; None if there is no such checkpoint any more. Checkpoints
        that were moved there before stay. RunError if the system refuses.
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
        """Renames the checkpoint of ``step`` to ``target``, durably. FileNotFoundError if there is no such checkpoint."""
        try:
            self._make(target.parent)
            os.rename(self.step_path(step), target)
            sync_dir(target.parent)
            sync_dir(self.path)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise refused(target, error) from error
        return target

    def _make(self, folder: Path) -> None:
        """Makes a folder of the run, if it is missing, and makes its name durable. An existing folder's name is synced too: the process
        that made the folder may have been killed before its own sync."""
        folder.mkdir(DIRECTORY_MODE, exist_ok=True)
        sync_dir(self.path)

    def clear(self, partial: tuple[int, str]) -> None:
        """Deletes the partial directory of (step, attempt), after renaming it to a name of the trash. RunError if it can't be renamed."""
        step, attempt = partial
        trash = self.path / names.trash_dir(step, attempt)
        durable.delete(trash)
        try:
            os.rename(self.partial_path(step, attempt), trash)
            sync_dir(self.path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise refused(self.partial_path(step, attempt), error) from error
        durable.delete(trash)

    def discard(self, folder: Path, step: int) -> bool:
        """Deletes a checkpoint's directory, after renaming it to a name of the trash. ``folder`` may also lie below ``abandoned/`` or
        ``damaged/``. False if some of its files could not be deleted: the next start of a job tries again. RunError if the directory
        can't be renamed."""
        trash = self.path / names.trash_dir(step, names.new_id())
        try:
            os.rename(folder, trash)
            sync_dir(folder.parent)
            sync_dir(self.path)
        except FileNotFoundError:
            return True
        except OSError as error:
            raise refused(folder, error) from error
        durable.delete(trash)
        return not os.path.lexists(trash)

    def clear_trash(self) -> None:
        """Deletes the directories that earlier deletions have renamed to names of the trash and not deleted completely, and the files by
        which dead attempts have told of failed steps. What can't be deleted stays until the next start of a job."""
        for name in self._list():
            if names.parse_trash_dir(name) is not None:
                durable.delete(self.path / name)
            elif names.parse_failed_file(name.removesuffix(names.temporary(""))) is not None:
                with contextlib.suppress(OSError):
                    (self.path / name).unlink()


def _give_identity(root: Path) -> None:
    """Writes a run.json with a new run id, unless there is one. CorruptError if run.json is missing although there are checkpoints: with
    a new id they would be another run's. OSError if the system refuses."""
    target = root / names.RUN_FILE
    if target.exists():
        return
    steps = [name for name in os.listdir(root) if names.parse_step_dir(name) is not None]
    if steps:
        expected = f"the identity of a run with {len(steps)} checkpoints"
        raise CorruptError(where=target, expected=expected, found="no such file", todo=LOST)
    run_id = names.new_id()
    # Two jobs may start in one new directory at once. os.link fails for the second one, so both find the first one's id.
    temporary = root / names.temporary(f"{names.RUN_FILE}.{run_id}")
    try:
        durable.write(temporary, RunFile(run_id, utc_now()).to_bytes())
        try:
            os.link(temporary, target)
        except FileExistsError:
            pass
        except OSError:
            os.replace(temporary, target)  # a file system without hard links
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()
    durable.sync_dir(root)
