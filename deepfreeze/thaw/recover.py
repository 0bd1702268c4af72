"""What a dead attempt left behind: finished if complete, else cleared; at a job's start, under the lock.

Every host looks at its own local tier (``leftover_slots``). Rank 0 alone looks at the run and decides (``plan``),
every host rescues its slots (``transfer``), rank 0 commits and clears (``finish``), and at last every host deletes
its slots (``clear_slots``).
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deepfreeze.core import names
from deepfreeze.core.errors import CorruptError, EngineError, NewerError, RunError
from deepfreeze.core.fields import open_file, read_small
from deepfreeze.core.record import MAX_RECORD, SLOT_HEADER, Record, SlotHeader
from deepfreeze.core.run import Run

log = logging.getLogger("deepfreeze")

# df_code of native/include/deepfreeze/deepfreeze.h.
_CORRUPT = 5
_INCOMPLETE = 6
_DIVERGED = 8


@dataclass(frozen=True)
class SlotInfo:
    """A whole slot on this host's local tier. Ids and hash in hexadecimal, sizes in bytes."""

    path: str
    step: int
    rank: int
    world_size: int
    file_size: int
    nbytes: int
    run_id: str
    attempt: str
    structure: str


@dataclass(frozen=True)
class SlotReport:
    """A slot and the host it is on."""

    host: str
    slot: SlotInfo


@dataclass(frozen=True)
class PartialState:
    """A partial directory: the ``ranks`` whose records are valid; the rest from these records, if there are any."""

    step: int
    attempt: str
    ranks: frozenset[int] = frozenset()
    world_size: int = 0
    file_size: int = 0
    structure: str = ""


@dataclass(frozen=True)
class Recovery:
    """Rank 0's decision.

    ``finish``: (step, attempt) to commit, oldest first. ``transfer``: by host, paths of slots to copy to the run
    before. ``clear``: (step, attempt) of partial directories to delete.
    """

    finish: list[tuple[int, str]] = field(default_factory=list)
    transfer: dict[str, list[str]] = field(default_factory=dict)
    clear: list[tuple[int, str]] = field(default_factory=list)


@dataclass(frozen=True)
class Finished:
    """What became of a recovery: ``committed`` and ``cleared`` (step, attempt), and ``lost`` with the reason why."""

    committed: list[tuple[int, str]]
    cleared: list[tuple[int, str]]
    lost: list[tuple[int, str, str]]


def leftover_slots(local_dir: str | os.PathLike[str]) -> list[SlotInfo]:
    """The whole slots in a run's directory of the local tier, sorted by path; [] if there is no such directory.

    A slot that was being written when its process died says so in its header, and is left out; one of a newer version of
    DeepFreeze is a CorruptError. A directory that others may write to is passed by: they could have put slots there.
    """
    import veloc_bindings

    with _own(local_dir) as folder:
        found = [] if folder is None else sorted(n for n in os.listdir(folder) if names.parse_slot_file(n) is not None)
    slots = []
    for name in found:
        path = os.path.join(os.fspath(local_dir), name)
        try:
            slots.append(_slot(path, veloc_bindings.slot_inspect(path)))
        except veloc_bindings.EngineFault:
            _refuse_newer(path)
    return slots


def _refuse_newer(path: str) -> None:
    """CorruptError if a newer version of DeepFreeze wrote a slot: what is not understood must not be cleared."""
    try:
        with open(open_file(path), "rb") as file:
            SlotHeader.from_bytes(file.read(SLOT_HEADER), os.fstat(file.fileno()).st_size, path)
    except OSError:
        return
    except NewerError:
        raise
    except CorruptError:
        return


def partial_states(run: Run) -> list[PartialState]:
    """What each partial directory of the run holds. A damaged record, or another checkpoint's, does not count. RunError for a
    symbolic link in a partial directory's place: what it leads to is not this run's."""
    return [_partial(run, step, attempt) for step, attempt in run.partials()]


def plan(run: Run, slots: Iterable[tuple[str, SlotInfo]]) -> Recovery:
    """Rank 0: ``plan_recovery`` for a run and all hosts' (host, slot) pairs. Another run's slots are ignored."""
    committed = run.committed()
    reports = [SlotReport(host, slot) for host, slot in slots if slot.run_id == run.run_id]
    return plan_recovery(committed[-1] if committed else None, partial_states(run), reports)


def plan_recovery(
    newest_committed: int | None, partials: Iterable[PartialState], slots: Iterable[SlotReport]
) -> Recovery:
    """Which leftovers make a complete checkpoint newer than the newest committed one. Pure: same input, same decision.

    Slots and records belong together only if step, attempt, world size, structure and file size all agree. Of two
    complete attempts at one step the one with more records is finished; there is no telling which is newer.
    """
    states = sorted(set(partials), key=lambda p: (p.step, p.attempt))
    reports = sorted(set(slots), key=lambda r: (r.host, r.slot.path))
    recovery = Recovery(clear=[(p.step, p.attempt) for p in states])
    candidates: dict[int, list[tuple[int, str, list[SlotReport]]]] = {}
    found = {(p.step, p.attempt) for p in states} | {(r.slot.step, r.slot.attempt) for r in reports}
    for step, attempt in sorted(found):
        if newest_committed is not None and step <= newest_committed:
            continue
        wanted = _completion(
            [p for p in states if (p.step, p.attempt) == (step, attempt)],
            [r for r in reports if (r.slot.step, r.slot.attempt) == (step, attempt)],
        )
        if wanted is not None:
            candidates.setdefault(step, []).append((len(wanted), attempt, wanted))
    for step in sorted(candidates):
        _, attempt, wanted = min(candidates[step], key=lambda c: c[:2])
        recovery.finish.append((step, attempt))
        for report in wanted:
            recovery.transfer.setdefault(report.host, []).append(report.slot.path)
        if (step, attempt) in recovery.clear:
            recovery.clear.remove((step, attempt))
    return recovery


def transfer(recovery: Recovery, host: str, run_dir: str | os.PathLike[str]) -> list[str]:
    """Copies this host's slots into the run's partial directories. Returns those that turned out to be damaged.

    EngineError if the engine or the store fails: then nothing may be cleared, and the next start can try again.
    """
    import veloc_bindings

    damaged = []
    for path in recovery.transfer.get(host, []):
        try:
            veloc_bindings.slot_transfer(path, os.fspath(run_dir))
        except veloc_bindings.EngineFault as fault:
            if int(fault.code) != _CORRUPT:
                raise _failed(path, "to copy a slot to the external store", fault) from fault
            damaged.append(path)
    return damaged


def finish(recovery: Recovery, run: Run) -> Finished:
    """Rank 0, after every host's ``transfer``: commits what is complete and clears the rest.

    A set whose slot turned out to be damaged, or whose ranks differ, is lost and cleared. EngineError if the store fails;
    nothing is cleared then.
    """
    import veloc_bindings

    committed, lost = [], []
    for step, attempt in recovery.finish:
        try:
            veloc_bindings.commit(os.fspath(run.path), step, bytes.fromhex(attempt))
        except veloc_bindings.EngineFault as fault:
            if int(fault.code) not in (_CORRUPT, _INCOMPLETE, _DIVERGED):
                where = run.partial_path(step, attempt)
                raise _failed(where, "to commit a dead attempt's checkpoint", fault) from fault
            lost.append((step, attempt, str(fault)))
            log.warning("step %d of a dead attempt could not be finished: %s", step, fault)
        else:
            committed.append((step, attempt))
            log.info("step %d of a dead attempt was complete: committed", step)
    present = set(run.partials())
    cleared = [*recovery.clear, *((step, attempt) for step, attempt, _ in lost if (step, attempt) in present)]
    for partial in cleared:
        run.clear(partial)
    run.clear_trash()
    return Finished(committed=committed, cleared=cleared, lost=lost)


def clear_slots(local_dir: str | os.PathLike[str]) -> None:
    """Deletes all slots in a run's directory of the local tier, whatever attempt's, after ``finish``; half-written ones too."""
    with _own(local_dir) as folder:
        for name in [] if folder is None else os.listdir(folder):
            if names.parse_slot_file(name) is not None:
                # One that can't be deleted is in nobody's way: an attempt has slots of its own. The next start tries again.
                with contextlib.suppress(OSError):
                    os.unlink(name, dir_fd=folder)


@contextlib.contextmanager
def _own(local_dir: str | os.PathLike[str]) -> Iterator[int | None]:
    """A descriptor of a run's directory of the local tier, or None if there is none, or if it or the user's directory above
    it is a symbolic link, another user's, or one that others may write to: they may lead anywhere, and hold anything."""
    path = Path(local_dir)
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    with contextlib.ExitStack() as opened:
        above = None
        for name in (path.parent, path.name):
            try:
                above = os.open(name, flags, dir_fd=above)
            except (FileNotFoundError, NotADirectoryError):
                above = None
            except OSError as error:
                log.warning("%s is passed by: %s", path, error.strerror)
                above = None
            if above is None:
                break
            opened.callback(os.close, above)
            status = os.fstat(above)
            if status.st_uid != os.geteuid() or status.st_mode & 0o022:
                log.warning("%s is passed by: others than user %d may write there", path, os.geteuid())
                above = None
                break
        yield above


def _completion(partials: list[PartialState], reports: list[SlotReport]) -> list[SlotReport] | None:
    """The slots to copy so that every rank has a record, one for each that lacks one; None if some can't be had."""
    shapes = {(p.world_size, p.file_size, p.structure) for p in partials if p.ranks}
    shapes |= {(r.slot.world_size, r.slot.file_size, r.slot.structure) for r in reports}
    if len(shapes) != 1:
        return None
    (world_size, _, _) = shapes.pop()
    have = frozenset().union(*(p.ranks for p in partials))
    by_rank: dict[int, SlotReport] = {}
    for report in reports:
        by_rank.setdefault(report.slot.rank, report)
    missing = [rank for rank in range(world_size) if rank not in have]
    if any(rank not in by_rank for rank in missing):
        return None
    return [by_rank[rank] for rank in missing]


def _partial(run: Run, step: int, attempt: str) -> PartialState:
    folder: Path = run.partial_path(step, attempt)
    if folder.is_symlink():
        todo = "remove it; this library did not make it"
        raise RunError(where=folder, expected="a directory", found="a symbolic link", todo=todo)
    ranks: dict[tuple[int, int, str], set[int]] = {}
    try:
        files = sorted(os.listdir(folder))
    except OSError:
        files = []
    for name in files:
        rank = names.parse_record_file(name)
        if rank is None:
            continue
        try:
            found = Record.from_bytes(read_small(folder / name, MAX_RECORD), folder / name).identity
        except OSError:
            continue
        except NewerError:
            raise
        except CorruptError:
            continue
        if (found.run_id, found.attempt, found.step, found.rank) == (run.run_id, attempt, step, rank):
            ranks.setdefault((found.world_size, found.file_size, found.structure), set()).add(rank)
    if len(ranks) != 1:  # none, or records that contradict each other
        return PartialState(step, attempt)
    ((world_size, file_size, structure), valid) = ranks.popitem()
    return PartialState(step, attempt, frozenset(valid), world_size, file_size, structure)


def _slot(path: str, info: Any) -> SlotInfo:
    return SlotInfo(
        path=path,
        step=int(info.step),
        rank=int(info.rank),
        world_size=int(info.world),
        file_size=int(info.file_size),
        nbytes=int(info.nbytes),
        run_id=bytes(info.run_id).hex(),
        attempt=bytes(info.attempt).hex(),
        structure=bytes(info.structure).hex(),
    )


def _failed(where: object, expected: str, fault: Exception) -> EngineError:
    todo = "mend what the message names and start again: nothing was deleted"
    return EngineError(where=where, expected=expected, found=str(fault), todo=todo)
