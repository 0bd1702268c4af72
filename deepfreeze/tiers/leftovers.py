"""What dead attempts left behind: whole slots on this host's local tier, and partial directories in the run.

Every host looks at its own local tier, at a job's start, under the run's lock (``leftover_slots``); rank 0 alone looks at the run
(``partial_states``). ``recovery_plan`` decides what becomes of both, ``rescue`` does it.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import veloc_bindings
from deepfreeze.errors import CorruptError, NewerError, RunError
from deepfreeze.format import names
from deepfreeze.format.record import MAX_RECORD, SLOT_HEADER, Record, SlotHeader
from deepfreeze.store.files import open_file, read_small
from deepfreeze.store.run import Run
from deepfreeze.tiers.recovery_plan import LeftoverSlot, PartialState

log = logging.getLogger("deepfreeze")


def leftover_slots(local_dir: str | os.PathLike[str]) -> list[LeftoverSlot]:
    """The whole slots in a run's directory of the local tier, sorted by path; [] if there is no such directory.

    A slot that was being written when its process died says so in its header, and is left out; one of a newer version of
    DeepFreeze is a CorruptError. A directory that others may write to is passed by: they could have put slots there.
    """
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


def partial_states(run: Run) -> list[PartialState]:
    """What each partial directory of the run holds. A damaged record, or another checkpoint's, does not count. RunError for a
    symbolic link in a partial directory's place: what it leads to is not this run's."""
    return [_partial(run, step, attempt) for step, attempt in run.partials()]


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


def _slot(path: str, info: Any) -> LeftoverSlot:
    return LeftoverSlot(
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
