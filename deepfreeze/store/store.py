"""The interface of the external store: what the rest of DeepFreeze asks of the place where a run is. ``stores`` lists the implementations.

A run is a set of files, whose names docs/format.md has: "run.json", "step-0000000006/manifest.json". A name has at most one folder. The
engine writes the files of a checkpoint; its half of the interface is native (native/store/store.h).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Protocol

from deepfreeze.store.granules import Granules
from deepfreeze.store.ranges import Ranges


class RunLock(Protocol):
    """A run's lock, which one job has at a time. A ``with`` releases it at its end.

    The thread that has taken it releases it, once for each ``fit`` or command. The lock of a training that its user has forgotten is
    released by the garbage collector, in whichever thread that runs. The caller guarantees that nothing changes the run any more."""

    def release(self) -> None:
        """Gives the lock back. May be called again."""

    def __enter__(self) -> RunLock: ...

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Appender(Protocol):
    """A file that grows.

    One thread calls all methods, which is not training's: ``write`` for each event that the file keeps, a few for each checkpoint, and
    ``close`` once. So a call may wait for the store. The caller guarantees that ``data`` is whole lines, about 200 bytes each, but for a
    line whose end did not fit before."""

    def write(self, data: bytes) -> int:
        """Appends ``data``. Returns how many of its bytes were written; fewer than there are where the store is full. OSError."""

    def close(self) -> None:
        """Closes the file."""


class Store(ABC):
    """One run's location on the external store.

    ``path``: the place as people name it, for messages and for ``CheckpointInfo.path``.

    Where there is no file of a name, methods raise FileNotFoundError, or NotADirectoryError where the folder is none. Any other OSError
    says that the store has refused, and its errno why. A change is durable when its method has returned.

    *Threads.* An object is used by one thread at a time, but several objects of one run are in use at once: in one process those of the
    training thread, of the thread of retention (rank 0) and of the thread that writes the file of events; in other processes those of the
    other ranks and of commands. Each thread makes its own by the run's name (``stores.at``). So what one object has changed, another one of
    the same run must show. ``Ranges``, which ``open`` returns, is read by several threads at once.

    *How often.* The training thread calls methods when a ``fit`` begins or ends, and before its first checkpoint; at no later one. The
    thread of retention reads and lists after each commit, and puts one small file. Commands and readers call as often as their user does.
    So a method may wait for the store.

    *What the caller guarantees.* Whoever changes the run has its lock, except where a comment below says otherwise. Names are those of
    docs/format.md; what is put is small, some MiB at most. The engine changes the same run at the same time: it alone touches the folders
    of the living attempt.
    """

    path: Path

    @property
    def directory(self) -> Path | None:
        """The directory in which the engine writes this run's checkpoints; None for a store that the engine can't write to: there, runs are
        read, tagged and pruned."""
        return None

    def where(self, name: str) -> Path:
        """The path of a file or folder, for messages."""
        return self.path / name

    def granules(self) -> Granules:
        """The pieces of a file that the store locks, or writes, as a whole; pages for a store without larger ones. Rank 0 asks once for
        each ``fit``, and tells all ranks."""
        return Granules()

    # Reading. Takes no lock, also while a job writes to the run.

    @abstractmethod
    def list(self, folder: str = "") -> list[str]:
        """The names in a folder, or of the run itself, in any order: of its files, its folders and its checkpoints."""

    @abstractmethod
    def has(self, name: str) -> bool:
        """Whether there is anything of this name, a file or a folder, damaged or not. ``""``: the run's location itself."""

    @abstractmethod
    def read(self, name: str, limit: int) -> bytes:
        """All bytes of a small file. CorruptError if it has more than ``limit`` bytes, or is no file."""

    @abstractmethod
    def open(self, name: str) -> Ranges:
        """Opens a file, to read ranges of it until ``Ranges.close``, also after the file was removed. CorruptError if it is no file."""

    @abstractmethod
    def nbytes(self, folder: str) -> int | None:
        """The size of all files in a folder together; None if there is no folder of this name."""

    # Small files. Whoever calls these has the run's lock, except for ``create`` and ``remove`` of a tag.

    @abstractmethod
    def put(self, name: str, data: bytes) -> None:
        """Makes ``data`` the content of a file, in place of what the file had. A reader gets the old bytes or the new ones, never a
        mixture. Makes the file's folder too."""

    @abstractmethod
    def create(self, name: str, data: bytes) -> bool:
        """As ``put``, unless there is a file of this name: then nothing changes, and the result is False. Of two processes that create the
        same file one succeeds."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Removes a small file."""

    @abstractmethod
    def append(self, name: str) -> Appender:
        """Makes a file that is written bit by bit and is not made durable. FileExistsError if there is one."""

    # Checkpoints, each a folder. Whoever calls these has the run's lock.

    @abstractmethod
    def publish(self, step: int, attempt: str) -> None:
        """Commits the checkpoint whose shards and records are in its partial folder: gathers the records, writes the manifest, and gives
        the checkpoint its step's name, in place of another attempt's. Readers see the whole checkpoint or none. CorruptError if a record
        is missing or damaged, or the ranks' weights differ; EngineError if the store fails. The partial folder stays then."""

    @abstractmethod
    def abandon(self, folder: str, to: str) -> None:
        """Gives a checkpoint's folder the name ``to``, which has a folder of its own: "damaged/step-0000000006"."""

    @abstractmethod
    def discard(self, folder: str, step: int) -> bool:
        """Removes a checkpoint's folder, of ``step``. Readers see all of it or nothing. False if bytes are left, which ``sweep`` removes.
        True if there is no such folder."""

    @abstractmethod
    def sweep(self) -> None:
        """Removes what earlier calls of ``discard`` have left. What can't be removed stays until the next call."""

    # The run's location.

    def make_above(self) -> Sequence[Path]:
        """Makes the directories above the run's location that are missing. Returns them, the uppermost first. RunError, and none of them is
        left, if the place can't be one for a run. A store without directories has nothing to make."""
        return ()

    def unmake_above(self, made: Sequence[Path]) -> None:
        """Removes what ``make_above`` has ``made``, as far as it is empty. Raises nothing."""
        return

    def refresh(self) -> None:
        """Looks for the run's location anew, where a store's client may remember for a while that there is none. Raises nothing."""
        return

    @abstractmethod
    def make(self) -> bool:
        """Makes the run's location, if there is none, and tries whether checkpoints can be committed there. Returns whether it was made.
        RunError if the place can't be one for a run."""

    @abstractmethod
    def unmake(self) -> None:
        """Removes the place that ``make`` has made, if it is empty."""

    @abstractmethod
    def lock(self, world_size: int = 1) -> RunLock:
        """Takes the run's lock, without waiting. The lock of a process that has ended is free. ``world_size``: the number of ranks that the
        caller knows of, for the advice of an error. LockedError, naming the holder, if another job has the lock; RunError if the store
        can't lock."""
