"""Deletes checkpoints that a run no longer needs: old ones, and what was moved aside."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from deepfreeze.errors import OptionError
from deepfreeze.format import names
from deepfreeze.store.catalog import checkpoints
from deepfreeze.store.lock import Lock
from deepfreeze.store.run import Run
from deepfreeze.store.writable_run import WritableRun

CHECKPOINT, DAMAGED, ABANDONED = "checkpoint", "damaged", "abandoned"


@dataclass(frozen=True)
class Item:
    """A directory to delete: ``what`` is "checkpoint" (committed), "damaged" or "abandoned"; ``nbytes`` of all its files."""

    what: str
    step: int
    path: Path
    nbytes: int


@dataclass(frozen=True)
class Pruning:
    """``keep``: the steps of the committed checkpoints that stay, sorted; ``items``: what goes, the oldest first.

    ``done`` is False for a plan. ``left``: those of the items of which something could not be deleted yet; the job's next
    start, or the next pruning, tries again.
    """

    run: Path
    keep: tuple[int, ...]
    items: tuple[Item, ...]
    done: bool = False
    left: tuple[Item, ...] = ()

    @property
    def freed(self) -> int:
        """Bytes that are free again; for a plan, those that would be."""
        return sum(item.nbytes for item in self.items if item not in self.left)


def plan(
    run: str | os.PathLike[str],
    keep: int,
    every: int | None = None,
    *,
    damaged: bool = False,
    abandoned: bool = False,
) -> Pruning:
    """What ``prune`` would do now, with the same arguments. Changes nothing and needs no lock."""
    for name, value in (("keep", keep), ("every", every if every is not None else 1)):
        if type(value) is not int or value < 1:
            todo = f"pass {name}= as described: the newest checkpoint always stays"
            raise OptionError(where=f"{name}=", expected="a whole number, 1 or more", found=repr(value), todo=todo)
    opened = Run.open(run)
    found = checkpoints(run)
    steps = [info.step for info in found]
    stay = set(steps[-keep:]) | {step for step in steps if every is not None and step % every == 0}
    # What is newer than that one are mixtures of several models.
    stay |= set([info.step for info in found if not info.diverged][-1:])
    items = [_item(CHECKPOINT, step, opened.step_path(step)) for step in steps if step not in stay]
    for wanted, what, folder, parse in (
        (damaged, DAMAGED, names.DAMAGED_DIR, names.parse_damaged_dir),
        (abandoned, ABANDONED, names.ABANDONED_DIR, names.parse_abandoned_dir),
    ):
        if wanted:
            items += [_item(what, step, path) for step, path in _aside(opened.path / folder, parse)]
    return Pruning(opened.path, tuple(sorted(stay)), tuple(items))


def prune(
    run: str | os.PathLike[str],
    keep: int,
    every: int | None = None,
    *,
    damaged: bool = False,
    abandoned: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Pruning:
    """Deletes all committed checkpoints but the newest ``keep``, the newest one at which the ranks did not differ, and those
    whose step is a multiple of ``every``; with ``damaged`` and ``abandoned`` also what was moved aside in the run.

    Takes the run's lock, so that no job can be writing to it or restoring from it. A checkpoint is renamed to a name that no
    reader takes for one before its files go; a reader that has it open keeps it until it closes. What has no valid manifest
    is left alone, and ``progress`` is called with the bytes deleted so far and in all.

    Raises OptionError, NotFoundError if there is no such run, LockedError naming the holder, CorruptError if run.json is
    damaged, RunError if a directory can't be renamed: then those before it are gone and the others are as they were.
    """
    plan(run, keep, every)  # refuses a wrong call before anything is locked
    with Lock.acquire(run):
        opened = WritableRun.open(run)
        opened.clear_trash()
        found = plan(run, keep, every, damaged=damaged, abandoned=abandoned)
        left = []
        done, total = 0, found.freed
        for item in found.items:
            if not opened.discard(item.path, item.step):
                left.append(item)
            done += item.nbytes
            if progress is not None:
                progress(done, total)
    return Pruning(found.run, found.keep, found.items, done=True, left=tuple(left))


def _aside(folder: Path, parse: Callable[[str], tuple | None]) -> Iterator[tuple[int, Path]]:
    """(step, path) of the checkpoints that were moved there, sorted."""
    try:
        listed = sorted(os.listdir(folder))
    except OSError:
        return  # nothing was
    for name in listed:
        parsed, path = parse(name), folder / name
        if parsed is not None and path.is_dir() and not path.is_symlink():
            yield parsed[0], path


def _item(what: str, step: int, path: Path) -> Item:
    nbytes = 0
    for folder, _, files in os.walk(path):
        for name in files:
            try:
                nbytes += os.lstat(os.path.join(folder, name)).st_size
            except OSError:
                continue  # gone meanwhile
    return Item(what, step, path, nbytes)
