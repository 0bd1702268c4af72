"""The runs in a directory, each in a few figures."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from deepfreeze.errors import Error
from deepfreeze.format import names
from deepfreeze.store.catalog import CheckpointInfo, checkpoints
from deepfreeze.store.failures import refused
from deepfreeze.store.run import Run
from deepfreeze.store.stores import at


@dataclass(frozen=True)
class RunInfo:
    """One run. ``newest``: its newest committed checkpoint, None if it has none; ``checkpoints``: how many it has; ``nbytes``: of all of
    them together, as ``CheckpointInfo`` counts. ``diverged``: the number of checkpoints at which ranks differed; ``damaged``: of step
    directories without a valid manifest, and of checkpoints that were moved to ``damaged/``; ``unfinished``: of steps not committed.
    ``problem``: why the run can't be read, None if it can; the figures are 0 then."""

    run: Path
    newest: CheckpointInfo | None = None
    checkpoints: int = 0
    nbytes: int = 0
    diverged: int = 0
    damaged: int = 0
    unfinished: int = 0
    problem: str | None = None


def runs(directory: str | os.PathLike[str]) -> list[RunInfo]:
    """The runs right below a directory, sorted by name, numbers in names by their value: ``trial-9`` before ``trial-10``. [] if there is
    none, or no such directory. OptionError if ``directory`` is no path, RunError if the directory can't be listed."""
    store = at(directory)
    try:
        listed = store.list()
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise refused(store.path, error) from error
    places = (store.path / name for name in sorted(listed, key=_natural) if not name.startswith("."))
    return [_info(place) for place in places if at(place).has(names.RUN_FILE)]


def _info(place: Path) -> RunInfo:
    try:
        run = Run.open(place)
        infos = checkpoints(place)
        return RunInfo(
            place,
            newest=infos[-1] if infos else None,
            checkpoints=len(infos),
            nbytes=sum(info.nbytes for info in infos),
            diverged=sum(info.diverged > 0 for info in infos),
            damaged=len(set(run.step_dirs()) - {info.step for info in infos}) + len(run.damaged()),
            unfinished=len({step for step, _ in run.partials()}),
        )
    except Error as error:
        return RunInfo(place, problem=str(error))


def _natural(name: str) -> list[tuple[int, str]]:
    """The parts of a name in an order in which numbers count by their value."""
    return [(int(part), "") if part.isdecimal() else (0, part) for part in re.split(r"([0-9]+)", name)]
