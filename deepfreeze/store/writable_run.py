"""The changes that Python makes to a run: each durable, and each a rename where something goes. (The engine writes checkpoints, commits
them, and removes those that are no longer kept.)"""

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

# Below the run: the longest name of a file that is being written there.
_DEEPEST = "/".join(
    ["", names.partial_dir(names.MAX_STEP, "0" * 32), names.temporary(names.record_file(names.MAX_RANK))]
)


def _refuse_too_long(root: Path) -> None:
    """A run whose own path fits, and those of its files don't, would fail with its first checkpoint."""
    nbytes, most = len(os.fsencode(root.absolute())), os.pathconf("/", "PC_PATH_MAX") - 1 - len(_DEEPEST)
    if nbytes > most:
        expected, found = f"a path of at most {most} bytes", f"{nbytes} bytes, which leaves too little for its files"
        raise RunError(where=root, expected=expected, found=found, todo="choose a shorter path")


class WritableRun(Run):
    """A run whose lock the caller holds, unless a method says otherwise."""

    @classmethod
    def open_or_make(cls, path: str | os.PathLike[str]) -> WritableRun:
        """Opens a run, and makes it if need be; needs no lock yet, because the lock lies in the run. RunError if the run has no
        parent, is a file, can't be written, or has too long a path; CorruptError if its run.json is damaged, or gone though there
        are checkpoints. A directory that was made here is removed again if it can't be used."""
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
            # Also if it is there: whoever made it may have been killed before that. But the folder above may be another's.
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
        """Writes into run.json, durably, which checkpoint the run was seeded from; returns the run as it is then. RunError if refused."""
        if parent == self.parent:
            return self
        file = self.path / names.RUN_FILE
        try:
            durable.replace(file, RunFile(self.run_id, self.created, parent).to_bytes())
        except OSError as error:
            raise refused(file, error) from error
        return replace(self, parent=parent)

    def claim(self, attempt: str) -> str:
        """Writes, durably, that the run is this attempt's, which it returns: an earlier one that still lives commits and removes
        nothing more. RunError if refused."""
        file = self.path / names.OWNER_FILE
        try:
            durable.replace(file, f"{attempt}\n".encode())
        except OSError as error:
            raise refused(file, error) from error
        return attempt

    def store_structure(self, structure: Structure) -> Path:
        """Writes ``structures/HASH.json`` durably, if it is not there yet; returns its path. RunError if refused."""
        return self._store(
            self.path / names.STRUCTURES_DIR / names.structure_file(structure.hash), structure.to_bytes()
        )

    def store_config(self, config: ModelConfig) -> Path:
        """Writes ``configs/ATTEMPT.json`` durably; returns its path. RunError if refused."""
        return self._store(self.path / names.CONFIGS_DIR / names.config_file(config.attempt), config.to_bytes())

    def _store(self, file: Path, data: bytes) -> Path:
        """Writes a file below one of the run's folders durably, unless it is there as it should be."""
        folder = file.parent
        try:
            self._make(folder)
            if file.is_file() and file.read_bytes() == data:
                sync_dir(folder)  # whoever wrote it may have been killed before that
            else:
                durable.replace(file, data)
        except OSError as error:
            raise refused(file, error) from error
        return file

    def abandon(self, step: int, attempt: str) -> Path:
        """Moves a committed checkpoint below ``abandoned/`` and returns its new path. RunError if refused."""
        folder = self.path / names.ABANDONED_DIR
        try:
            return self._move(step, folder / names.abandoned_dir(step, attempt))
        except FileNotFoundError as error:
            raise refused(self.step_path(step), error) from error

    def quarantine(self, step: int) -> Path | None:
        """Moves a damaged checkpoint below ``damaged/`` and returns its new path; None if it is gone. RunError if refused.

        What was moved there before is kept.
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
        """Makes a folder of the run, if it is missing, and makes its name durable before anything is put into it. A folder that is
        there is synced too: the process that made it may have been killed before its own sync."""
        folder.mkdir(DIRECTORY_MODE, exist_ok=True)
        sync_dir(self.path)

    def clear(self, partial: tuple[int, str]) -> None:
        """Deletes a partial directory, by way of the trash. RunError if it can't be renamed."""
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
        """Deletes a checkpoint's directory, also one below ``abandoned/`` or ``damaged/``, by way of the trash.
        False if something of it is left, for the next start to delete. RunError if it can't be renamed."""
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
        """Deletes what an earlier deletion left behind. What can't be deleted stays for the next start."""
        for name in self._list():
            if names.parse_trash_dir(name) is not None:
                durable.delete(self.path / name)


def _give_identity(root: Path) -> None:
    """Writes run.json, unless it is there. CorruptError if it is gone though there are checkpoints: a new one would make them
    another run's. OSError if refused."""
    target = root / names.RUN_FILE
    if target.exists():
        return
    steps = [name for name in os.listdir(root) if names.parse_step_dir(name) is not None]
    if steps:
        expected = f"the identity of a run with {len(steps)} checkpoints"
        raise CorruptError(where=target, expected=expected, found="no such file", todo=LOST)
    run_id = names.new_id()
    # Two jobs may start in one new directory at once. The run has the id that was linked first, for both of them.
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
