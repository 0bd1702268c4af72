"""The changes that Python makes to a run. (The engine makes the other changes: it writes checkpoints, commits them, and deletes those that
retention does not keep.)"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from deepfreeze.errors import CorruptError, Error
from deepfreeze.format import names
from deepfreeze.format.model_config import ModelConfig
from deepfreeze.format.run_file import LOST, Parent, RunFile, utc_now
from deepfreeze.format.structure import Structure
from deepfreeze.store.failures import refused
from deepfreeze.store.run import Run
from deepfreeze.store.store import Store
from deepfreeze.store.stores import at


class WritableRun(Run):
    """A run that may be changed. The caller of a method holds the run's lock, unless the method says otherwise."""

    @classmethod
    def open_or_make(
        cls, path: str | os.PathLike[str] | Store, tell: Callable[[Sequence[Path]], object] = lambda above: None
    ) -> WritableRun:
        """Opens a run, and makes its directory and run.json if they are missing, and the directories above it. ``tell`` is called with
        those above it that were made, the uppermost first, if there are any. The caller holds no lock yet: the lock's file lies in the run.
        Raises OptionError if ``path`` is no path; RunError if it seems that the file system of ``path`` is not mounted, ``path`` is a file
        or too long, or the system refuses; CorruptError if run.json is damaged, or is missing although there are checkpoints. If a
        directory that this call has made can't be used, the call removes it again."""
        store = at(path)
        above = store.make_above()
        try:
            made = store.make()
            try:
                _give_identity(store)
            except OSError as error:
                if made:
                    store.unmake()
                raise refused(store.path, error) from error
        except BaseException:
            store.unmake_above(above)
            raise
        if above:
            tell(above)
        return cls.open(store)

    def set_parent(self, parent: Parent | None) -> WritableRun:
        """Writes into run.json which checkpoint the run was seeded from, and returns the changed run. RunError if the system refuses."""
        if parent == self.parent:
            return self
        self._put(names.RUN_FILE, RunFile(self.run_id, self.created, parent).to_bytes())
        return replace(self, parent=parent)

    def claim(self, attempt: str) -> str:
        """Writes the attempt's id into ``RUN/owner``, and returns the id. An earlier attempt that still lives commits and deletes nothing
        more in this run. RunError if the system refuses."""
        self._put(names.OWNER_FILE, f"{attempt}\n".encode())
        return attempt

    def store_structure(self, structure: Structure, durable: bool = False) -> None:
        """Writes ``structures/HASH.json``. ``durable``: this process has done so before, so if the file is there nothing is synced again.
        RunError if the system refuses."""
        name = f"{names.STRUCTURES_DIR}/{names.structure_file(structure.hash)}"
        if not (durable and self.store.has(name)):
            self._put(name, structure.to_bytes())

    def store_config(self, config: ModelConfig) -> None:
        """Writes ``configs/ATTEMPT.json``. RunError if the system refuses."""
        self._put(f"{names.CONFIGS_DIR}/{names.config_file(config.attempt)}", config.to_bytes())

    def _put(self, name: str, data: bytes) -> None:
        try:
            self.store.put(name, data)
        except OSError as error:
            raise refused(self.store.where(name), error) from error

    def abandon(self, step: int, attempt: str) -> Path:
        """Moves a committed checkpoint to ``abandoned/`` and returns its new path. RunError if the system refuses, or if there is no such
        checkpoint."""
        try:
            return self._move(step, f"{names.ABANDONED_DIR}/{names.abandoned_dir(step, attempt)}")
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
        targets = (f"{names.DAMAGED_DIR}/{names.damaged_dir(step, attempt, number)}" for number in itertools.count(1))
        target = next(name for name in targets if not self.store.has(name))
        try:
            return self._move(step, target)
        except FileNotFoundError:
            return None

    def _move(self, step: int, target: str) -> Path:
        """Gives the checkpoint of ``step`` the name ``target``. FileNotFoundError if there is no such checkpoint."""
        try:
            self.store.abandon(self.step_file(step), target)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise refused(self.store.where(target), error) from error
        return self.store.where(target)

    def clear(self, partial: tuple[int, str]) -> None:
        """Deletes the partial checkpoint of (step, attempt). RunError if the system refuses."""
        self.discard(names.partial_dir(*partial), partial[0])

    def discard(self, folder: str, step: int) -> bool:
        """Deletes a checkpoint's folder, which may also lie below ``abandoned/`` or ``damaged/``. False if some of its bytes could not be
        deleted: the next start of a job tries again. RunError if the system refuses; the checkpoint is as it was then."""
        try:
            return self.store.discard(folder, step)
        except OSError as error:
            raise refused(self.store.where(folder), error) from error

    def told(self) -> frozenset[tuple[int, str]]:
        """(step, attempt) of the steps that attempts have told to have failed, or to be given up. RunError if the run can't be listed."""
        return frozenset(found for name in self._list() if (found := names.parse_failed_file(name)) is not None)

    def clear_trash(self) -> None:
        """Deletes what earlier deletions have not deleted completely, and the files by which dead attempts have told of failed steps. What
        can't be deleted stays until the next start of a job. RunError if the run can't be listed."""
        try:
            self.store.sweep()
        except OSError as error:
            raise refused(self.path, error) from error
        for name in self._list():
            if names.parse_failed_file(name.removesuffix(names.temporary(""))) is not None:
                with contextlib.suppress(OSError):
                    self.store.remove(name)


def _give_identity(store: Store) -> None:
    """Writes a run.json with a new run id, unless there is one. CorruptError if run.json is missing although there are checkpoints: with
    a new id they would be another run's. OSError if the system refuses."""
    if store.has(names.RUN_FILE):
        return
    steps = [name for name in store.list() if names.parse_step_dir(name) is not None]
    if steps:
        expected = f"the identity of a run with {len(steps)} checkpoints"
        raise CorruptError(where=store.where(names.RUN_FILE), expected=expected, found="no such file", todo=LOST)
    # Two jobs may start in one new directory at once: both find the first one's id.
    store.create(names.RUN_FILE, RunFile(names.new_id(), utc_now()).to_bytes())
