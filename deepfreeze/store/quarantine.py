"""The search for the newest checkpoint that is whole: which checkpoint to try next, and the move of damaged ones to ``RUN/damaged``."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from deepfreeze.errors import CorruptError, Error, NewerError
from deepfreeze.format import names
from deepfreeze.notices import Notify
from deepfreeze.store.catalog import none_committed
from deepfreeze.store.run import Run
from deepfreeze.store.writable_run import WritableRun


@dataclass
class Damage:
    """The damage of the checkpoint of ``step``. ``error``: what is wrong; ``rank``: the rank that found it, None if only one process
    has looked; ``moved``: the checkpoint's new path, None as long as it was not moved; ``reported``: whether the user was told."""

    step: int
    error: CorruptError
    rank: int | None = None
    moved: Path | None = None
    reported: bool = False

    @property
    def is_structure(self) -> bool:
        """Whether the damaged file is the structure's, which several checkpoints share: the checkpoint's own files may be whole."""
        return Path(self.error.where).parent.name == names.STRUCTURES_DIR

    def __str__(self) -> str:
        who = "" if self.rank is None else f" (found by rank {self.rank})"
        where = "" if self.moved is None else f" Moved to {self.moved}."
        return f"step {self.step} is damaged{who}: {self.error}{where}"


@dataclass
class Fallback:
    """A search through a run, from the newest checkpoint down; ``notify``: is told of damaged checkpoints; ``damages``: those found so far.

    How it is used: ``next`` gives a step; the caller tries to read that checkpoint; if it is damaged, the caller tells ``found`` and
    asks ``next`` again. The constructor reads nothing. ``run.json`` is read by the first call.
    """

    path: str | os.PathLike[str]
    notify: Notify
    damages: list[Damage] = field(default_factory=list)

    @property
    def run(self) -> Run:
        """The run, with its run.json read anew. NotFoundError if there is no run, CorruptError if its run.json is damaged."""
        return Run.open(self.path)

    def next(self) -> int | None:
        """The newest step with a valid manifest that was not found to be damaged; None if there is none. Each newer step directory
        without a valid manifest is added to ``damages``. Raises NotFoundError, RunError or CorruptError if the run can't be read,
        NewerError if a newer version of DeepFreeze wrote a manifest."""
        damaged = {damage.step for damage in self.damages if damage.moved is None}
        newest, invalid = self.run.newest_and_invalid(damaged)
        self.damages += [Damage(step, error) for step, error in invalid.items()]
        return newest

    def found(self, step: int, errors: Iterable[CorruptError | None], ranks: bool = False) -> None:
        """Notes that the checkpoint of ``step`` is damaged. ``errors`` has at least one error, and the first one counts; ``ranks``:
        ``errors`` has one entry per rank, None for a rank that found no damage. A NewerError is no damage, and no older checkpoint
        may take that checkpoint's place: it is raised."""
        rank, error = next((rank, error) for rank, error in enumerate(errors) if error is not None)
        if isinstance(error, NewerError):
            raise error
        # The frames of its traceback would keep in memory all that was read so far.
        error = error.with_traceback(None)
        self.damages.append(Damage(step, error, rank if ranks else None))

    def quarantine_invalid(self) -> None:
        """Moves every step directory without a valid manifest that is newer than the newest checkpoint to ``damaged/``. The caller
        holds the run's lock. RunError if the system refuses. Older such directories may stay: no new checkpoint will need their names.
        """
        _, invalid = self.run.newest_and_invalid()
        self.damages += [Damage(step, error) for step, error in invalid.items()]
        self.quarantine()

    def quarantine(self) -> None:
        """Moves the damaged checkpoints to ``damaged/``, with a warning for each. The caller holds the run's lock. RunError if the
        system refuses.

        A checkpoint stays where it is if only the structure's file is damaged.
        """
        try:
            for damage in self.damages:
                if damage.moved is None and not damage.is_structure:
                    damage.moved = WritableRun.open(self.path).quarantine(damage.step)
        finally:
            self.report("left in place")

    def report(self, where: str) -> None:
        """Warns of each damaged checkpoint that was not reported yet. ``where``: the end of the sentence "It is ..." about a
        checkpoint that was not moved, "left in place" for example."""
        for damage in self.damages:
            if not damage.reported:
                place = "left in place: its own files may be whole" if damage.is_structure else where
                self.notify("warning", f"{damage} It is {place}." if damage.moved is None else f"{damage}")
                damage.reported = True

    def structure_lost(self) -> CorruptError | None:
        """The error of the first checkpoint that could not be read because the structure's file is damaged; None if there is none."""
        for damage in self.damages:
            if damage.is_structure:
                return damage.error
        return None

    def nothing_left(self) -> Error:
        """The error to raise when ``next`` has found no checkpoint and the damaged ones were not moved. It says what is wrong with each,
        or that no checkpoint is committed."""
        if len(self.damages) == 1:
            return self.damages[0].error
        if not self.damages:
            return none_committed(self.run)
        found = "; ".join(map(str, self.damages))
        todo = "restore the damaged files from a copy"
        return CorruptError(where=self.path, expected="a checkpoint that is whole", found=found, todo=todo)
