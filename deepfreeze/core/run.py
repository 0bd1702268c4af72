"""A run: one training job's directory on the external store, and every change made to it from Python."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
from dataclasses import dataclass, replace
from pathlib import Path

from deepfreeze.core import durable, identity, names
from deepfreeze.core.durable import DIRECTORY_MODE, refused, sync_dir, unreadable
from deepfreeze.core.errors import CorruptError, Error, NewerError, NotFoundError, OptionError, RunError
from deepfreeze.core.fields import DAMAGED, read_small
from deepfreeze.core.identity import Identity
from deepfreeze.core.lineage import Parent
from deepfreeze.core.manifest import Manifest
from deepfreeze.core.model_config import MAX_CONFIG, ModelConfig
from deepfreeze.core.structure import MAX_STRUCTURE, Structure

_STRUCTURE = (
    "the checkpoints that need this file can be read again once it is back: take it from a copy of the run, or from "
    "another run of the same program, where it has the same name"
)
_CONFIG = "train with Checkpoint(save_config=True), or build the model in your program and load an exported .weights.h5"

# The advice to a job whose run another job has claimed.
END_THIS_JOB = "end this job: it commits and removes nothing more there; the file lock in the run names the other job's host and pid"

# Below the run: the longest name of a file that is being written there.
_DEEPEST = "/".join(
    ["", names.partial_dir(names.MAX_STEP, "0" * 32), names.temporary(names.record_file(names.MAX_RANK))]
)


def directory(run: str | bytes | os.PathLike) -> Path:
    """A run's path as it was given. ``OptionError`` for what no directory can be called."""
    if isinstance(run, (str, bytes, os.PathLike)):
        text = os.fsdecode(run)
        if text and "\0" not in text:
            return Path(text)
    todo = 'pass a path, e.g. "runs/nt3"'
    raise OptionError(where="run=", expected="a directory", found=repr(run)[:200], todo=todo)


def _refuse_too_long(root: Path) -> None:
    """A run whose own path fits, and those of its files don't, would fail with its first checkpoint."""
    nbytes, most = len(os.fsencode(root.absolute())), os.pathconf("/", "PC_PATH_MAX") - 1 - len(_DEEPEST)
    if nbytes > most:
        expected, found = f"a path of at most {most} bytes", f"{nbytes} bytes, which leaves too little for its files"
        raise RunError(where=root, expected=expected, found=found, todo="choose a shorter path")


@dataclass(frozen=True)
class Run:
    """An existing run directory. ``path`` is as the user gave it, ``created`` a time in UTC, ``parent`` the checkpoint that the
    run was seeded from, if it was."""

    path: Path
    run_id: str
    created: str
    parent: Parent | None = None

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Run:
        """Opens a run for reading. OptionError if it is no path, NotFoundError if it is no run, CorruptError if its run.json is
        damaged."""
        root = directory(path)
        found = identity.read(root)
        return cls(root, found.run_id, found.created, found.parent)

    @classmethod
    def open_for_writing(cls, path: str | os.PathLike[str]) -> Run:
        """Opens a run, and makes it if need be. RunError if it has no parent, is a file, can't be written, or has too long a
        path, CorruptError if its run.json is damaged, or gone though there are checkpoints. A directory that was made here is
        removed again if it can't be used."""
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
            identity.make(root)
        except OSError as error:
            if made:
                with contextlib.suppress(OSError):
                    root.rmdir()
            raise refused(root, error) from error
        return cls.open(root)

    def set_parent(self, parent: Parent | None) -> Run:
        """Writes into run.json, durably, which checkpoint the run was seeded from; returns the run as it is then. For the holder
        of the run's lock. RunError if refused."""
        if parent == self.parent:
            return self
        file = self.path / names.RUN_FILE
        try:
            durable.replace(file, Identity(self.run_id, self.created, parent).to_bytes())
        except OSError as error:
            raise refused(file, error) from error
        return replace(self, parent=parent)

    def claim(self, attempt: str) -> str:
        """Writes, durably, that the run is this attempt's, which it returns: an earlier one that still lives commits and removes
        nothing more. For the holder of the run's lock. RunError if refused."""
        file = self.path / names.OWNER_FILE
        try:
            durable.replace(file, f"{attempt}\n".encode())
        except OSError as error:
            raise refused(file, error) from error
        return attempt

    def step_path(self, step: int) -> Path:
        """Where the committed checkpoint of ``step`` is, if there is one. OptionError if there can be no such step."""
        try:
            return self.path / names.step_dir(step)
        except (TypeError, ValueError):
            expected, todo = (
                f"a whole number from 0 to {names.MAX_STEP}",
                "pass a step that deepfreeze.checkpoints lists",
            )
            raise OptionError(where="step=", expected=expected, found=repr(step)[:200], todo=todo) from None

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
            except NewerError:
                raise
            except CorruptError as error:
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
        return self._store(
            self.path / names.STRUCTURES_DIR / names.structure_file(structure.hash), structure.to_bytes()
        )

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

    def store_config(self, config: ModelConfig) -> Path:
        """Writes ``configs/ATTEMPT.json`` durably; returns its path. RunError if refused."""
        return self._store(self.path / names.CONFIGS_DIR / names.config_file(config.attempt), config.to_bytes())

    def config(self, attempt: str) -> ModelConfig:
        """The configuration of the model that an attempt trained. NotFoundError if it was not stored, CorruptError if it is
        not valid."""
        file = self.path / names.CONFIGS_DIR / names.config_file(attempt)
        try:
            data = read_small(file, MAX_CONFIG)
        except (FileNotFoundError, NotADirectoryError):
            expected = "the configuration of the model"
            found = "none: the job that wrote this checkpoint ran without save_config"
            raise NotFoundError(where=file, expected=expected, found=found, todo=_CONFIG) from None
        except OSError as error:
            raise unreadable(file, error) from error
        config = ModelConfig.from_bytes(data, file)
        if (config.attempt, config.run_id) != (attempt, self.run_id):
            expected, found = f"attempt {attempt} of run {self.run_id}", f"{config.attempt} of {config.run_id}"
            raise CorruptError(where=file, expected=expected, found=found, todo=DAMAGED)
        return config

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
        """Deletes a checkpoint's directory, also one below ``abandoned/`` or ``damaged/``, by way of the trash; for the holder
        of the run's lock. False if something of it is left, for the next start to delete. RunError if it can't be renamed."""
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

    def _list(self) -> list[str]:
        try:
            return os.listdir(self.path)
        except OSError as error:
            raise refused(self.path, error) from error

    def _no_such(self, step: int) -> NotFoundError:
        steps = self.committed()
        found = "steps " + ", ".join(map(str, steps[-10:])) if steps else "no checkpoint"
        todo = "choose one of these" if steps else "let the job run until its first checkpoint is committed"
        return NotFoundError(where=self.path, expected=f"a checkpoint of step {step}", found=found, todo=todo)
