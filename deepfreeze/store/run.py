"""Reading a run: one training job's place on the external store. ``writable_run`` changes it."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from deepfreeze.errors import CorruptError, Error, NewerError, NotFoundError, OptionError
from deepfreeze.format import names
from deepfreeze.format.manifest import MAX_MANIFEST, Manifest
from deepfreeze.format.model_config import MAX_CONFIG, ModelConfig
from deepfreeze.format.run_file import MAX_RUN_FILE, Parent, RunFile
from deepfreeze.format.strict_json import DAMAGED
from deepfreeze.format.structure import MAX_STRUCTURE, Structure
from deepfreeze.store.failures import refused, unreadable
from deepfreeze.store.store import Store
from deepfreeze.store.stores import at

R = TypeVar("R", bound="Run")

_STRUCTURE_LOST = (
    "the checkpoints that need this file can be read again once it is back: take it from a copy of the run, or from "
    "another run of the same program, where it has the same name"
)
_NO_CONFIG = "build the model in your program and load an exported .weights.h5; `deepfreeze log RUN` says what Keras could not describe"


@dataclass(frozen=True)
class Run:
    """An existing run. ``store``: where it is; ``run_id``: 32 hexadecimal digits; ``created``: a time in UTC, such as
    2026-11-21T03:35:58Z; ``parent``: the checkpoint that the run was seeded from, None if it began with values of its own."""

    store: Store
    run_id: str
    created: str
    parent: Parent | None = None

    @classmethod
    def open(cls: type[R], path: str | os.PathLike[str] | Store) -> R:
        """Opens an existing run by reading its run.json. Raises OptionError if ``path`` is no path, NotFoundError if there is no run,
        CorruptError if its run.json is damaged, RunError if it can't be read."""
        store = at(path)
        run_file = _run_file(store)
        return cls(store, run_file.run_id, run_file.created, run_file.parent)

    @property
    def path(self) -> Path:
        """The run's path, as the user gave it."""
        return self.store.path

    def step_path(self, step: int) -> Path:
        """The path that the committed checkpoint of ``step`` has, whether there is one or not, for messages. OptionError if ``step`` is not
        a whole number from 0 to MAX_STEP."""
        return self.store.where(self.step_file(step))

    def step_file(self, step: int, name: str = "") -> str:
        """The name, in the store, of a file of the committed checkpoint of ``step``; without ``name``, of the checkpoint's folder.
        OptionError if ``step`` is not a whole number from 0 to MAX_STEP."""
        try:
            folder = names.step_dir(step)
        except (TypeError, ValueError):
            expected, todo = (
                f"a whole number from 0 to {names.MAX_STEP}",
                "pass a step that deepfreeze.checkpoints lists",
            )
            raise OptionError(where="step=", expected=expected, found=repr(step)[:200], todo=todo) from None
        return f"{folder}/{name}" if name else folder

    def has_step(self, step: int) -> bool:
        """Whether ``step`` has a folder, whether its manifest is valid or not."""
        return self.store.has(self.step_file(step))

    def step_dirs(self) -> list[int]:
        """The steps that have a directory, sorted, whether its manifest is valid or not. RunError if the run can't be listed."""
        return sorted(step for name in self._list() if (step := names.parse_step_dir(name)) is not None)

    def committed(self) -> list[int]:
        """The steps whose manifest is valid, sorted: the run's committed checkpoints. RunError if the run can't be listed."""
        steps = []
        for step in self.step_dirs():
            try:
                self.manifest(step)
            except Error:
                continue  # half-deleted, damaged, or copied from another run: not a checkpoint of this run
            steps.append(step)
        return steps

    def newest(self) -> int | None:
        """The newest step whose manifest is valid; None if there is none. Reads manifests from the newest one down, until one is valid.
        RunError if the run can't be listed or the system does not read a manifest, NewerError if a newer version of DeepFreeze wrote it:
        an older step must not pass for the newest then."""
        return self.newest_and_invalid()[0]

    def manifest(self, step: int) -> Manifest:
        """The manifest of ``step``. NotFoundError if there is no such step directory, CorruptError if the manifest is missing, damaged,
        or of another step or run, RunError if the system does not read it."""
        name = self.step_file(step, names.MANIFEST_FILE)
        file = self.store.where(name)
        try:
            manifest = Manifest.from_bytes(_read_again(self.store, name, MAX_MANIFEST), file)
        except (FileNotFoundError, NotADirectoryError):
            if self.has_step(step):
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

    def newest_and_invalid(self, excluded: Container[int] = ()) -> tuple[int | None, dict[int, CorruptError]]:
        """The newest step with a valid manifest, None if there is none; and the error of each newer step directory that has no valid
        manifest, by its step. The ``excluded`` steps are in neither. Errors that are no damage are raised: RunError if the system does
        not read a manifest, NewerError if a newer version of DeepFreeze wrote it."""
        invalid: dict[int, CorruptError] = {}
        for step in reversed(self.step_dirs()):
            if step in excluded:
                continue
            try:
                self.manifest(step)
            except NotFoundError:
                continue  # deleted since it was listed
            except NewerError:
                raise
            except CorruptError as error:
                invalid[step] = error.with_traceback(None)
            else:
                return step, invalid
        return None, invalid

    def damaged(self) -> list[tuple[int, str | None]]:
        """(step, attempt) of every checkpoint below ``damaged/``, sorted by step. attempt is None where the manifest did not tell."""
        try:
            listed = self.store.list(names.DAMAGED_DIR)
        except OSError:
            return []
        found = [parsed for name in listed if (parsed := names.parse_damaged_dir(name)) is not None]
        return sorted(found, key=lambda one: (one[0], one[1] or ""))

    def partials(self) -> list[tuple[int, str]]:
        """(step, attempt) of every partial directory, sorted."""
        return sorted(found for name in self._list() if (found := names.parse_partial_dir(name)) is not None)

    def structure(self, structure_hash: str) -> Structure:
        """Reads the structure with this hash (64 hexadecimal digits). CorruptError if its file is missing or its bytes have another
        hash, RunError if the system does not read it."""
        name = f"{names.STRUCTURES_DIR}/{names.structure_file(structure_hash)}"
        file = self.store.where(name)
        try:
            data = self.store.read(name, MAX_STRUCTURE)
        except FileNotFoundError:
            expected = "the names and places of all tensors"
            raise CorruptError(where=file, expected=expected, found="no such file", todo=_STRUCTURE_LOST) from None
        except OSError as error:
            raise unreadable(file, error) from error
        actual = hashlib.sha256(data).hexdigest()
        if actual != structure_hash:
            raise CorruptError(where=file, expected=f"SHA-256 {structure_hash}", found=actual, todo=_STRUCTURE_LOST)
        return Structure.from_bytes(data, file)

    def config(self, attempt: str) -> ModelConfig:
        """The configuration of the model that an attempt trained. NotFoundError if the job did not store one,
        CorruptError if the file is damaged or another attempt's, RunError if the system does not read it."""
        name = f"{names.CONFIGS_DIR}/{names.config_file(attempt)}"
        file = self.store.where(name)
        try:
            data = self.store.read(name, MAX_CONFIG)
        except (FileNotFoundError, NotADirectoryError):
            expected = "the configuration of the model"
            found = "none: the job ran with save_config=False, or Keras could not describe the model"
            raise NotFoundError(where=file, expected=expected, found=found, todo=_NO_CONFIG) from None
        except OSError as error:
            raise unreadable(file, error) from error
        config = ModelConfig.from_bytes(data, file)
        if (config.attempt, config.run_id) != (attempt, self.run_id):
            expected, found = f"attempt {attempt} of run {self.run_id}", f"{config.attempt} of {config.run_id}"
            raise CorruptError(where=file, expected=expected, found=found, todo=DAMAGED)
        return config

    def _list(self) -> list[str]:
        try:
            return self.store.list()
        except OSError as error:
            raise refused(self.path, error) from error

    def _no_such(self, step: int) -> NotFoundError:
        steps = self.committed()
        found = "steps " + ", ".join(map(str, steps[-10:])) if steps else "no checkpoint"
        todo = "choose one of these" if steps else "let the job run until its first checkpoint is committed"
        return NotFoundError(where=self.path, expected=f"a checkpoint of step {step}", found=found, todo=todo)


def _run_file(store: Store) -> RunFile:
    """Reads a run's run.json. NotFoundError if the store has no run, CorruptError if run.json is damaged, RunError if the system does not
    read it."""
    try:
        data = store.read(names.RUN_FILE, MAX_RUN_FILE)
    except (FileNotFoundError, NotADirectoryError) as error:
        found = "a directory without one" if store.has("") else "no such directory"
        if isinstance(error, NotADirectoryError):
            found = "a file"
        todo = "check the path: it is the directory that was given to deepfreeze.Checkpoint"
        raise NotFoundError(
            where=store.path, expected=f"a run, with {names.RUN_FILE}", found=found, todo=todo
        ) from None
    except OSError as error:
        raise refused(store.path, error) from error
    return RunFile.from_bytes(data, store.where(names.RUN_FILE))


def _read_again(store: Store, name: str, limit: int) -> bytes:
    """As ``Store.read``, with a second try after an error that may pass. A network file system says ESTALE of a file that is removed while
    it is read: the second try then says that there is none."""
    try:
        return store.read(name, limit)
    except OSError as error:
        if error.errno not in (errno.ESTALE, errno.EIO):
            raise
        return store.read(name, limit)
