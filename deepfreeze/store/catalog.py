"""Which checkpoints a run has."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from deepfreeze.errors import CorruptError, Error, NotFoundError
from deepfreeze.format.run_file import Parent
from deepfreeze.format.structure import Structure
from deepfreeze.store.run import Run

EXTERNAL = "external"
_RETRIES = 10  # retention may delete the newest checkpoint only after a newer one exists

T = TypeVar("T")


@dataclass(frozen=True)
class CheckpointInfo:
    """One committed checkpoint.

    ``run`` and ``path`` are directories, ``nbytes`` the size of its model file plus all ranks' private bytes,
    ``created`` the time of its commit in UTC (2026-11-21T03:35:58Z), ``attempt`` and ``structure`` hexadecimal.
    ``state`` is "full" or "weights". ``layout`` is "keras-h5" where stock Keras loads the model file, and "plain-h5" where
    that has every variable as it is: for a ``tf.Module``, and where layers transform what they save. Both are "unknown",
    with an empty ``framework``, if the run's structure file is damaged. ``diverged``: how many tensors were not the same
    on all ranks, though they should have been, there or when they were last compared (0: none that was compared). ``run_id`` is
    the run's, whatever its directory is called; ``parent`` the checkpoint of another run that this run was seeded from by
    ``transfer`` or ``restore``, if it was.
    """

    run: Path
    step: int
    level: str
    nbytes: int
    world_size: int
    created: str
    attempt: str
    path: Path
    structure: str
    state: str
    framework: Mapping[str, str] = field(hash=False)
    diverged: int = 0
    run_id: str = ""
    parent: Parent | None = None
    layout: str = "unknown"


def checkpoints(run: str | os.PathLike[str]) -> list[CheckpointInfo]:
    """All committed checkpoints of a run, oldest first. NotFoundError if the directory is no run."""
    opened = Run.open(run)
    structures: dict[str, Structure | None] = {}
    found = (_described(opened, step, structures) for step in opened.step_dirs())
    return [info for info in found if info is not None]


def latest(run: str | os.PathLike[str]) -> CheckpointInfo | None:
    """The newest committed checkpoint, or None. NotFoundError if the directory is no run."""
    opened = Run.open(run)
    found = (_described(opened, step, {}) for step in reversed(opened.step_dirs()))
    return next((info for info in found if info is not None), None)


def describe(run: Run, step: int, structures: dict[str, Structure | None] | None = None) -> CheckpointInfo:
    """What is known of one checkpoint. NotFoundError or CorruptError if it does not count. ``structures``: those that were read
    before, by hash; None stands for one that can't be read."""
    manifest = run.manifest(step)
    structures = {} if structures is None else structures
    if manifest.structure not in structures:
        try:
            structures[manifest.structure] = run.structure(manifest.structure)
        except Error:
            # The checkpoint counts all the same; whoever reads tensors from it gets the error.
            structures[manifest.structure] = None
    state, layout, framework = "unknown", "unknown", {}
    if (structure := structures[manifest.structure]) is not None:
        state, layout, framework = structure.state, structure.layout, dict(structure.framework)
    return CheckpointInfo(
        run=run.path,
        step=step,
        level=EXTERNAL,
        nbytes=manifest.file_size + manifest.private,
        world_size=manifest.world_size,
        created=manifest.created,
        attempt=manifest.attempt,
        path=run.step_path(step),
        structure=manifest.structure,
        state=state,
        framework=framework,
        diverged=manifest.diverged,
        run_id=run.run_id,
        parent=run.parent,
        layout=layout,
    )


def _described(run: Run, step: int, structures: dict[str, Structure | None]) -> CheckpointInfo | None:
    """None for a directory that does not count: half-deleted, damaged, or somebody's copy."""
    try:
        return describe(run, step, structures)
    except Error:
        return None


def parent_of(info: CheckpointInfo) -> Parent:
    """The checkpoint as the parent of what is made from it."""
    return Parent.at(info.run, info.run_id, info.step, info.attempt)


def choose(run: Run, step: int | None) -> int:
    """``step``, or the newest one for None. NotFoundError naming what exists if there is no such checkpoint."""
    if step is not None:
        run.manifest(step)
        return step
    newest = run.newest()
    if newest is None:
        raise none_committed(run)
    return newest


def use(run: Run, step: int | None, action: Callable[[int], T]) -> T:
    """``action`` with ``step``, or for None with the newest one: again with a newer one where a job's retention has deleted
    that in between. Raises what ``choose`` and ``action`` raise."""
    for attempt in range(_RETRIES):
        chosen = choose(run, step)
        try:
            return action(chosen)
        except (CorruptError, NotFoundError):
            if step is not None or attempt == _RETRIES - 1 or run.step_path(chosen).exists():
                raise
    raise AssertionError("unreachable")


def none_committed(run: Run) -> NotFoundError:
    """The error for a run without a checkpoint."""
    partial = len(run.partials())
    found = f"none ({partial} unfinished)" if partial else "none"
    todo = "let the job run until its first checkpoint is committed"
    return NotFoundError(where=run.path, expected="a committed checkpoint", found=found, todo=todo)
