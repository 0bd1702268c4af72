"""Finds what dead attempts have left behind: whole slots on this node's local tier, and partial directories in the run.

When a job starts, and rank 0 holds the run's lock, one rank of each node looks at the node's local tier (``leftover_slots``), and rank 0
looks at the run (``partial_states``). ``recovery_plan`` decides which of them make a checkpoint, ``rescue`` carries the decision out.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from deepfreeze.engine.backends import table
from deepfreeze.engine.faults import EngineFault
from deepfreeze.engine.records import SlotInfo
from deepfreeze.errors import CorruptError, NewerError, RunError
from deepfreeze.format import names
from deepfreeze.format.record import MAX_RECORD, SLOT_HEADER, Record, SlotHeader, split
from deepfreeze.notices import Notify, unheard
from deepfreeze.store.files import open_file
from deepfreeze.store.run import Run
from deepfreeze.tiers.recovery_plan import LeftoverSlot, PartialState


def leftover_slots(local_dir: str | os.PathLike[str], notify: Notify) -> list[LeftoverSlot]:
    """The whole slots in ``local_dir``, a run's directory on the local tier, sorted by path; [] if there is no such directory.

    Damaged slots are left out, and so are those that were being written when their process died, which their headers tell. A
    directory that other users may write to counts as empty, because they could have put slots there; ``notify`` is told so. NewerError
    for a slot that a newer version of DeepFreeze wrote.
    """
    with _own_folder(local_dir, notify) as folder:
        listed = [] if folder is None else sorted(n for n in os.listdir(folder) if names.parse_slot_file(n) is not None)
    slots = []
    for name in listed:
        path = os.path.join(os.fspath(local_dir), name)
        try:
            slots.append(_leftover(path, table.rescue().slot(path)))
        except EngineFault:
            _refuse_newer(path)
    return slots


def partial_states(run: Run) -> list[PartialState]:
    """The state of each partial directory of the run. Damaged records, and records of another checkpoint, are left out. RunError if a
    partial directory is a symbolic link: the directory behind the link is not this run's."""
    return [_partial_state(run, step, attempt) for step, attempt in run.partials()]


def clear_slots(local_dir: str | os.PathLike[str]) -> None:
    """Deletes all slots in ``local_dir``, a run's directory on the local tier: those of all attempts, half-written ones too. To be called
    after ``rescue.finish``, when no slot is needed any more."""
    with _own_folder(local_dir, unheard) as folder:  # ``leftover_slots`` has told of it
        for name in [] if folder is None else os.listdir(folder):
            if names.parse_slot_file(name) is not None:
                # A slot that can't be deleted does no harm, because each attempt has slots of its own. The next start tries again.
                with contextlib.suppress(OSError):
                    os.unlink(name, dir_fd=folder)


@contextlib.contextmanager
def _own_folder(local_dir: str | os.PathLike[str], notify: Notify) -> Iterator[int | None]:
    """Opens ``local_dir``, a run's directory on the local tier, and yields its descriptor. Yields None if the directory is missing, or if
    another user may have put files there: if it, or the user's directory above it, is a symbolic link, belongs to another user, or may
    be written to by others."""
    path = Path(local_dir)
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    with contextlib.ExitStack() as descriptors:
        folder = None
        for name in (path.parent, path.name):
            try:
                folder = os.open(name, flags, dir_fd=folder)
            except (FileNotFoundError, NotADirectoryError):
                folder = None
            except OSError as error:
                notify("warning", f"{path} is left alone: {error.strerror}")
                folder = None
            if folder is None:
                break
            descriptors.callback(os.close, folder)
            status = os.fstat(folder)
            if status.st_uid != os.geteuid() or status.st_mode & 0o022:
                notify("warning", f"{path} is left alone: users other than {os.geteuid()} may write there")
                folder = None
                break
        yield folder


def _leftover(path: str, slot: SlotInfo) -> LeftoverSlot:
    return LeftoverSlot(
        path=path,
        step=slot.step,
        rank=slot.rank,
        world_size=slot.world,
        file_size=slot.file_size,
        nbytes=slot.nbytes,
        run_id=slot.run_id.hex(),
        attempt=slot.attempt.hex(),
        structure=slot.structure.hex(),
    )


def _refuse_newer(path: str) -> None:
    """NewerError if a newer version of DeepFreeze wrote the slot: a slot that this version can't read must not be deleted."""
    try:
        with open(open_file(path), "rb") as file:
            SlotHeader.from_bytes(file.read(SLOT_HEADER), os.fstat(file.fileno()).st_size, path)
    except OSError:
        return
    except NewerError:
        raise
    except CorruptError:
        return


def _partial_state(run: Run, step: int, attempt: str) -> PartialState:
    folder = names.partial_dir(step, attempt)
    ranks: dict[tuple[int, int, str], set[int]] = {}  # by world size, file size and structure
    try:
        files = sorted(run.store.list(folder))
    except NotADirectoryError:
        todo = "remove it; DeepFreeze did not make this link, or file"
        raise RunError(
            where=run.store.where(folder), expected="a directory", found="a symbolic link or a file", todo=todo
        ) from None
    except OSError:
        files = []
    for rank, file, data in _records(run, folder, files):
        try:
            identity = Record.from_bytes(data, run.store.where(file)).identity
        except NewerError:
            raise
        except CorruptError:
            continue
        if (identity.run_id, identity.attempt, identity.step, identity.rank) == (run.run_id, attempt, step, rank):
            ranks.setdefault((identity.world_size, identity.file_size, identity.structure), set()).add(rank)
    if len(ranks) != 1:  # no record, or records that contradict each other
        return PartialState(step, attempt)
    ((world_size, file_size, structure), valid) = ranks.popitem()
    return PartialState(step, attempt, frozenset(valid), world_size, file_size, structure)


def _records(run: Run, folder: str, files: list[str]) -> Iterator[tuple[int, str, bytes]]:
    """The records in a partial directory, as (rank, file, bytes): those that have a file of their own, and those of a node's ranks."""
    for name in files:
        rank, ranks = names.parse_record_file(name), names.parse_node_record_file(name)
        if rank is not None:
            ranks = range(rank, rank + 1)
        if ranks is None:
            continue
        file = f"{folder}/{name}"
        try:
            data = run.store.read(file, MAX_RECORD)
        except (OSError, CorruptError):
            continue
        parts = [data] if rank is not None else split(data)
        if len(parts) == len(ranks):
            yield from ((rank, file, part) for rank, part in zip(ranks, parts, strict=True))
