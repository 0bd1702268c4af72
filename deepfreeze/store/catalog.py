"""The committed checkpoints of a run: listing them, describing one, choosing one by its step."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from deepfreeze.errors import CorruptError, Error, NewerError, NotFoundError
from deepfreeze.format import manifest_values
from deepfreeze.format.levels import Level
from deepfreeze.format.marks import Mark
from deepfreeze.format.run_file import Parent
from deepfreeze.format.structure import Structure
from deepfreeze.store.marks import finite
from deepfreeze.store.run import Run
from deepfreeze.store.tags import read_marks, tagged_step

# How often ``use`` tries again when a job's retention has deleted the checkpoint that was just chosen. Retention deletes a checkpoint
# only after a newer one is committed, so there is another one to choose.
_ATTEMPTS = 10

T = TypeVar("T")


@dataclass(frozen=True)
class CheckpointInfo:
    """One committed checkpoint.

    - ``run``, ``path``: the directories of the run and of the checkpoint. ``run_id``: the run's id (32 hexadecimal digits), which stays
      the same when the directory is renamed.
    - ``step``: the optimizer iterations done. ``level``: always "external". ``created``: the time of the commit in UTC, such as
      2026-11-21T03:35:58Z.
    - ``nbytes``: the size of the model file plus the private bytes of all ranks. ``world_size``: the number of ranks that wrote it.
    - ``attempt``: the id of the attempt that wrote it. ``structure``: the hash of its structure, 64 hexadecimal digits.
    - ``state``: "full", or "weights" for a checkpoint without the optimizers' variables. ``layout``: "keras-h5" if stock Keras loads
      the model file; "plain-h5" if the file has each variable under DeepFreeze's own path, as for a ``tf.Module`` and for layers that
      transform what they save. ``framework``: the keys api, keras and tensorflow (their versions). If the run's structure file is
      damaged, ``state`` and ``layout`` are "unknown", and ``framework`` is empty.
    - ``diverged``: how many replicated tensors differed between ranks when the ranks were compared last, at this checkpoint or before.
    - ``parent``: the checkpoint of another run that this run was seeded from by ``transfer`` or ``restore``; None if it was not.
    - ``values``: what the training has said of the checkpoint, by name: ``position`` (epoch, batch), ``logs`` (of the last epoch that had
      ended when the checkpoint was taken), ``metadata`` (the option of this name).
    - ``metrics``: the checkpoint's own metrics, by name: of the epoch whose newest checkpoint it is, or those that a loop has logged for
      it. ``epoch``: the number of epochs that were done then; None in a loop. ``measured``: the step at which they were taken, which is
      later than ``step`` where the epoch had steps after the checkpoint. ``{}``, None and None while there are none, and if the run's
      file of metrics, marks.json, is lost or damaged.
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
    values: Mapping[str, Any] = field(default_factory=dict, hash=False)
    epoch: int | None = None
    metrics: Mapping[str, float] = field(default_factory=dict, hash=False)
    measured: int | None = None

    def with_metrics(self, marks: Mapping[int, Mark]) -> CheckpointInfo:
        """The same, with the metrics that the run's ``marks``, by step, have of this checkpoint; else with those that its manifest has."""
        mark = marks.get(self.step)
        if mark is not None and mark.attempt == self.attempt and (mark.metrics or mark.epoch is not None):
            return replace(self, epoch=mark.epoch, metrics=mark.metrics, measured=mark.measured)
        # A job that was killed has told the manifest of the epoch's end, and its marks not yet.
        ended = manifest_values.measured_at(self.values, self.step)
        if ended is None:
            return self
        return replace(self, epoch=ended[0], metrics=finite(ended[1]), measured=self.step)


def checkpoints(run: str | os.PathLike[str]) -> list[CheckpointInfo]:
    """All committed checkpoints of a run, oldest first. Raises OptionError if ``run`` is no path, NotFoundError if the directory is
    no run, CorruptError if its run.json is damaged or a newer version of DeepFreeze wrote a checkpoint, RunError if it can't be read."""
    opened_run = Run.open(run)
    return listed(opened_run, marks_of(opened_run))


def listed(run: Run, marks: Mapping[int, Mark]) -> list[CheckpointInfo]:
    """As ``checkpoints``, for a caller who has read the run's ``marks``, by step."""
    structures: dict[str, Structure | None] = {}
    infos = (_describe_valid(run, step, structures, marks) for step in run.step_dirs())
    return [info for info in infos if info is not None]


def latest(run: str | os.PathLike[str]) -> CheckpointInfo | None:
    """The newest committed checkpoint of a run; None if the run has none. Raises OptionError if ``run`` is no path, NotFoundError if
    the directory is no run, CorruptError if its run.json is damaged or a newer version of DeepFreeze wrote the checkpoint, RunError if it
    can't be read: no older checkpoint passes for the newest then."""
    opened_run = Run.open(run)
    infos = (_describe_valid(opened_run, step, {}, {}) for step in reversed(opened_run.step_dirs()))
    info = next((info for info in infos if info is not None), None)
    return None if info is None else info.with_metrics(marks_of(opened_run))


def marks_of(run: Run) -> dict[int, Mark]:
    """The run's marks by step; {} if there are none, or their file can't be read: checkpoints are listed all the same."""
    try:
        found = read_marks(run)
    except Error:
        return {}
    return {} if found is None else {mark.step: mark for mark in found.marks}


def describe(
    run: Run,
    step: int,
    structures: dict[str, Structure | None] | None = None,
    marks: Mapping[int, Mark] | None = None,
) -> CheckpointInfo:
    """Describes the checkpoint of one step. NotFoundError if there is none, CorruptError if its manifest is not valid. ``structures``
    is a cache, to which this call may add: the run's structures by their hash, None for a structure that can't be read. ``marks``: the
    run's, by step, if the caller has read them already."""
    manifest = run.manifest(step)
    structures = {} if structures is None else structures
    if manifest.structure not in structures:
        try:
            structures[manifest.structure] = run.structure(manifest.structure)
        except Error:
            # The checkpoint is listed all the same. Reading its tensors raises the error.
            structures[manifest.structure] = None
    state, layout, framework = "unknown", "unknown", {}
    if (structure := structures[manifest.structure]) is not None:
        state, layout, framework = structure.state, structure.layout, dict(structure.framework)
    info = CheckpointInfo(
        run=run.path,
        step=step,
        level=Level.EXTERNAL.label,
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
        values=manifest.values,
    )
    return info.with_metrics(marks_of(run) if marks is None else marks)


def _describe_valid(
    run: Run, step: int, structures: dict[str, Structure | None], marks: Mapping[int, Mark]
) -> CheckpointInfo | None:
    """As ``describe``, but None for a directory without a valid manifest: half-deleted, damaged, or copied from another run. RunError if
    the system does not read the manifest, NewerError if a newer version of DeepFreeze wrote it."""
    try:
        return describe(run, step, structures, marks)
    except NewerError:
        raise
    except (CorruptError, NotFoundError):
        return None


def parent_of(info: CheckpointInfo) -> Parent:
    """The checkpoint as the ``Parent`` of a run that is seeded from it."""
    return Parent.at(info.run, info.run_id, info.step, info.attempt)


def numbered(run: Run, step: int | str | None) -> int | None:
    """``step`` with the step's number in place of a tag. NotFoundError if there is no such tag, or its checkpoint is gone.
    OptionError for digits in a text, which are no tag's name."""
    return tagged_step(run, step) if isinstance(step, str) else step


def choose(run: Run, step: int | str | None) -> int:
    """``step``; of a tag its checkpoint's step; or for None the newest step with a valid manifest. NotFoundError, naming the steps that
    exist, if there is no such checkpoint; CorruptError if the manifest of ``step`` is not valid; what ``Run.newest`` raises, for None."""
    step = numbered(run, step)
    if step is not None:
        run.manifest(step)
        return step
    newest = run.newest()
    if newest is None:
        raise none_committed(run)
    return newest


def use(run: Run, step: int | str | None, action: Callable[[int], T]) -> T:
    """Returns ``action(step)``; for ``step=None`` the action gets the newest step, for a tag its step. If a job's retention deletes the
    checkpoint before the action is done, ``choose`` is asked again: the action gets a newer one, or, where a step or a tag was named, the
    checkpoint is not found. Raises what ``choose`` and ``action`` raise."""
    for attempt in range(_ATTEMPTS):
        chosen = choose(run, step)
        try:
            return action(chosen)
        except (CorruptError, NotFoundError):
            if attempt == _ATTEMPTS - 1 or run.has_step(chosen):
                raise
    raise AssertionError("unreachable")


def none_committed(run: Run) -> NotFoundError:
    """The error for a run without a committed checkpoint."""
    partial = len(run.partials())
    found = f"none ({partial} unfinished)" if partial else "none"
    todo = "let the job run until its first checkpoint is committed"
    return NotFoundError(where=run.path, expected="a committed checkpoint", found=found, todo=todo)
