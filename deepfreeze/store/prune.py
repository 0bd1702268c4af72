"""Deletes checkpoints that a run no longer needs: old committed ones, and those below ``damaged/`` and ``abandoned/``."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from deepfreeze.format import names
from deepfreeze.notices import Notify, unheard
from deepfreeze.store.marks import Marks, write
from deepfreeze.store.retention import Verdict, Wants
from deepfreeze.store.rules import as_rule, with_tagged
from deepfreeze.store.run import Run
from deepfreeze.store.store import Store
from deepfreeze.store.writable_run import WritableRun

CHECKPOINT, DAMAGED, ABANDONED = "checkpoint", "damaged", "abandoned"


@dataclass(frozen=True)
class Removal:
    """A directory to delete. ``kind``: "checkpoint" (a committed one), "damaged" or "abandoned"; ``path``: for people; ``nbytes``: the size
    of all its files together; ``name``: of the directory in the run."""

    kind: str
    step: int
    path: Path
    nbytes: int
    name: str


@dataclass(frozen=True)
class Pruning:
    """``keep``: the reason for each committed checkpoint that stays, sorted by step. ``removals``: the directories to delete, committed
    checkpoints first, each kind sorted by step.

    ``done``: False for a plan, True once the directories are deleted. ``left``: those of the removals that still have files which
    could not be deleted; the next start of a job in the run, and the next ``prune``, try again.
    """

    run: Path
    keep: Mapping[int, str]
    removals: tuple[Removal, ...]
    done: bool = False
    left: tuple[Removal, ...] = ()

    @property
    def freed(self) -> int:
        """Bytes of the directories that were deleted, or in a plan would be."""
        return sum(removal.nbytes for removal in self.removals if removal not in self.left)


def plan(
    run: str | os.PathLike[str],
    keep: int | Wants,
    *,
    damaged: bool = False,
    abandoned: bool = False,
    notify: Notify = unheard,
) -> Pruning:
    """What ``prune`` would do now, with the same arguments. Changes nothing and takes no lock. Raises OptionError for a wrong argument,
    NotFoundError if there is no such run, CorruptError if its run.json or a tag is damaged."""
    opened_run = Run.open(run)
    verdict = Marks.read(opened_run, notify).judge(with_tagged(as_rule(keep)))
    return _acting_on(opened_run, verdict, damaged, abandoned)


def prune(
    run: str | os.PathLike[str],
    keep: int | Wants,
    *,
    damaged: bool = False,
    abandoned: bool = False,
    progress: Callable[[int, int], None] | None = None,
    notify: Notify = unheard,
) -> Pruning:
    """Deletes committed checkpoints of a run. Those stay that ``keep`` wants, which is a number of the newest or a rule of
    ``deepfreeze.store``; and those that have a tag, the newest, and the newest whose ranks agreed. With ``damaged`` and ``abandoned`` the
    checkpoints below these folders of the run are deleted too. Step directories without a valid manifest are left alone.

    Takes the run's lock: no job writes to the run meanwhile, or starts from it. Each checkpoint is first renamed to a name that no
    reader takes for a checkpoint's, then its files are deleted. A program that has the files open can go on reading them.
    ``progress`` is called after each directory with (bytes deleted so far, bytes to delete in all). ``notify`` is told if the metrics of
    the run's checkpoints are lost.

    Raises OptionError for a wrong argument, NotFoundError if there is no such run, LockedError naming the holder if a job has the run,
    CorruptError if run.json is damaged, RunError if a directory can't be renamed: the directories before it are deleted then, and the
    others are as they were.
    """
    plan(run, keep, notify=notify)  # refuses wrong arguments before the lock's file is made
    opened_run = WritableRun.open(run)
    with opened_run.store.lock():
        opened_run.clear_trash()
        known, rule = Marks.read(opened_run, unheard), with_tagged(as_rule(keep))
        verdict = known.judge(rule)
        if verdict.remove:
            # A tag that succeeds from now on keeps its checkpoint: what goes is in marks.json, and nothing else goes; see store/tags.
            verdict = known.retain(rule, 0, False, lambda data: write(opened_run, data))
        pruning = _acting_on(opened_run, verdict, damaged, abandoned)
        left = []
        done, total = 0, pruning.freed
        for removal in pruning.removals:
            if not opened_run.discard(removal.name, removal.step):
                left.append(removal)
            done += removal.nbytes
            if progress is not None:
                progress(done, total)
    return Pruning(pruning.run, pruning.keep, pruning.removals, done=True, left=tuple(left))


def _acting_on(run: Run, verdict: Verdict, damaged: bool, abandoned: bool) -> Pruning:
    """What is deleted of a run if ``verdict`` is acted on."""
    removals = [_removal(run.store, CHECKPOINT, step, run.step_file(step)) for step in verdict.remove]
    for wanted, kind, folder, parse in (
        (damaged, DAMAGED, names.DAMAGED_DIR, names.parse_damaged_dir),
        (abandoned, ABANDONED, names.ABANDONED_DIR, names.parse_abandoned_dir),
    ):
        if wanted:
            removals += [_removal(run.store, kind, step, name) for step, name in _moved_to(run.store, folder, parse)]
    return Pruning(run.path, verdict.keep, tuple(removals))


def _moved_to(store: Store, folder: str, parse: Callable[[str], tuple | None]) -> Iterator[tuple[int, str]]:
    """(step, name in the run) of the checkpoints that were moved to a folder of the run, sorted by name. ``parse``: takes a name apart, the
    step first."""
    try:
        listed = sorted(store.list(folder))
    except OSError:
        return  # the folder is made when the first checkpoint is moved
    for name in listed:
        parsed = parse(name)
        if parsed is not None and store.nbytes(f"{folder}/{name}") is not None:
            yield parsed[0], f"{folder}/{name}"


def _removal(store: Store, kind: str, step: int, name: str) -> Removal:
    return Removal(kind, step, store.where(name), store.nbytes(name) or 0, name)
