"""The newest checkpoint that is whole: which checkpoint to try next, and where damaged checkpoints are put."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from deepfreeze.errors import CorruptError, Error, NewerError
from deepfreeze.format import names
from deepfreeze.store.catalog import none_committed
from deepfreeze.store.run import Run
from deepfreeze.store.writable_run import WritableRun

log = logging.getLogger("deepfreeze")


@dataclass
class Damage:
    """What is wrong with the checkpoint of ``step``."""

    step: int
    error: CorruptError
    rank: int | None = None  # who found it, where several looked
    moved: Path | None = None
    said: bool = False

    @property
    def is_structure(self) -> bool:
        """Whether it is the structure's file, which several checkpoints share: the checkpoint's own files may be whole."""
        return Path(self.error.where).parent.name == names.STRUCTURES_DIR

    def __str__(self) -> str:
        who = "" if self.rank is None else f" (found by rank {self.rank})"
        where = "" if self.moved is None else f" Moved to {self.moved}."
        return f"step {self.step} is damaged{who}: {self.error}{where}"


@dataclass
class Fallback:
    """A run's checkpoints from the newest one down, and the ``damages`` met on the way. Nothing is read before it is used."""

    path: str | os.PathLike[str]
    damages: list[Damage] = field(default_factory=list)

    @property
    def run(self) -> Run:
        """As it is now."""
        return Run.open(self.path)

    def next(self) -> int | None:
        """The newest step not found to be damaged; None if there is none. A newer directory without a valid manifest is one
        more damage. RunError or CorruptError if the run can't be read."""
        passed = {damage.step for damage in self.damages if damage.moved is None}
        newest, invalid = self.run.newest_and_invalid(passed)
        self.damages += [Damage(step, error) for step, error in invalid.items()]
        return newest

    def found(self, step: int, errors: Iterable[CorruptError | None], ranks: bool = False) -> None:
        """``step`` is damaged: the first of the ``errors``, which are by rank if ``ranks``, says how. What a newer version wrote
        is not, and no older checkpoint takes its place: that error is raised."""
        rank, error = next((rank, error) for rank, error in enumerate(errors) if error is not None)
        if isinstance(error, NewerError):
            raise error
        # The frames of its traceback hold what was read so far.
        error = error.with_traceback(None)
        self.damages.append(Damage(step, error, rank if ranks else None))

    def quarantine_invalid(self) -> None:
        """Moves every directory without a valid manifest below ``damaged/`` that is newer than the newest valid one; for the lock's
        holder. RunError if refused. Older ones are in nobody's way: no step is committed in their place."""
        _, invalid = self.run.newest_and_invalid()
        self.damages += [Damage(step, error) for step, error in invalid.items()]
        self.quarantine()

    def quarantine(self) -> None:
        """Moves what was found damaged below ``damaged/`` and says so; for the lock's holder. RunError if refused.

        What can't be read for want of the structure's file is left in place.
        """
        try:
            for damage in self.damages:
                if damage.moved is None and not damage.is_structure:
                    damage.moved = WritableRun.open(self.path).quarantine(damage.step)
        finally:
            self.report("left in place")

    def report(self, where: str) -> None:
        """Logs a warning for each damaged checkpoint that has none yet. ``where``: the end of the sentence "It is ..." about those
        that were not moved, "left in place" for example."""
        for damage in self.damages:
            if not damage.said:
                place = "left in place: its own files may be whole" if damage.is_structure else where
                log.warning("%s%s", damage, f" It is {place}." if damage.moved is None else "")
                damage.said = True

    def structure_lost(self) -> CorruptError | None:
        """The error of a structure's file, if that is why a checkpoint could not be read."""
        for damage in self.damages:
            if damage.is_structure:
                return damage.error
        return None

    def nothing_left(self) -> Error:
        """The error that says why there is nothing to restore, to be raised where none of the damaged ones was moved."""
        if len(self.damages) == 1:
            return self.damages[0].error
        if not self.damages:
            return none_committed(self.run)
        found = "; ".join(map(str, self.damages))
        todo = "restore the damaged files from a copy"
        return CorruptError(where=self.path, expected="a checkpoint that is whole", found=found, todo=todo)
