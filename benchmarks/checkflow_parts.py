"""Parts of checkpoints, as a plan of the step has them: the memory in which copies of them are held, and the threads that write them.
For the prototypes of ``benchmarks.checkflow`` alone. Imports no TensorFlow.

A checkpoint is one file. Each part has a place of its own in it and is written past the page cache, from a copy or straight from the
training's tensors. A file with all parts is synced and renamed. The file before it is then written anew, for a later step: a disk takes
bytes faster where a file has its blocks already (the engine's slots do the same).
"""

from __future__ import annotations

import math
import mmap
import os
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

PAGE = 4096
CHUNK = 4 << 20  # bytes that a writer writes at once, of a part without a copy
PATIENCE = 0.25  # seconds; then a copy is made although there is no room, so that nothing waits for ever


@dataclass(frozen=True)
class Slice:
    """``nbytes`` bytes of a tensor, from ``begin`` on. ``tensor``: its number."""

    tensor: int
    begin: int
    nbytes: int


@dataclass(frozen=True)
class FilePart:
    """A part, with its place in the file. ``copy``, ``write``: windows, as of ``PlannedPart``."""

    number: int
    slices: tuple[Slice, ...]
    nbytes: int
    offset: int
    copy: int | None
    write: int


@dataclass
class _Piece:
    """A part of a checkpoint on its way: the ``buffer`` with its copy, or the ``arrays`` of the training's tensors."""

    buffer: mmap.mmap | None = None
    arrays: Sequence[np.ndarray] | None = None
    due: bool = False
    done: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)  # held by the writer that reads from ``arrays``


@dataclass
class _File:
    descriptor: int
    left: int  # parts


class Room:
    """Memory for copies. ``held``, ``most``: bytes of copies now, and at most; ``by_step``: the most of each step; ``waited``: seconds for
    which copies have waited for room; ``exceeded``: how many were made without room; ``mapped``: bytes of the buffers, each of which has
    room for the largest part."""

    def __init__(self, nbytes: int, largest: int) -> None:
        self.held = self.most = self.exceeded = self.mapped = 0
        self.by_step: list[int] = []
        self.waited = 0.0
        self._nbytes, self._size = nbytes, -(-largest // PAGE) * PAGE
        self._free: list[mmap.mmap] = []
        self._changed = threading.Condition()

    def step_begins(self) -> None:
        """The next entry of ``by_step`` begins."""
        with self._changed:
            self.by_step.append(self.held)

    def take(self, nbytes: int) -> mmap.mmap:
        """A buffer for a copy of so many bytes."""
        with self._changed:
            if self.held + nbytes > self._nbytes:
                begun = time.perf_counter()
                if not self._changed.wait_for(lambda: self.held + nbytes <= self._nbytes, PATIENCE):
                    self.exceeded += 1
                self.waited += time.perf_counter() - begun
            self.held += nbytes
            self.most = max(self.most, self.held)
            if self.by_step:
                self.by_step[-1] = max(self.by_step[-1], self.held)
            if self._free:
                return self._free.pop()
            self.mapped += self._size
            return mmap.mmap(-1, self._size)

    def give(self, buffer: mmap.mmap, nbytes: int) -> None:
        """The copy is written."""
        with self._changed:
            self.held -= nbytes
            self._free.append(buffer)
            self._changed.notify_all()


class Moved(list[tuple[float, float, int]]):
    """Bytes that threads have moved: (begin, end, bytes), times in seconds, in the order of the ends."""

    @contextmanager
    def moving(self, nbytes: int) -> Iterator[None]:
        """A thread moves so many bytes in the body."""
        begin = time.perf_counter()
        yield
        self.append((begin, time.perf_counter(), nbytes))


def rate(moved: Sequence[tuple[float, float, int]]) -> float:
    """Bytes in a second in which any thread moves some, infinite if none has."""
    edges, moving = _moving(moved, [edge for begin, end, _ in moved for edge in (begin, end)])
    seconds = float(np.diff(edges)[moving > 0].sum())
    return sum(nbytes for *_, nbytes in moved) / seconds if seconds else math.inf


def rates(
    written: Sequence[tuple[float, float, int]], copied: Sequence[tuple[float, float, int]]
) -> tuple[float, float]:
    """Bytes that writers write in a second while training does not copy, and while it does. Parts that are written at once have equal
    shares of the store. At these rates, as many bytes as were written come out of all parts, each counted by its share of the time without
    copies, and so for the time beside them. (Least squares would give too little: the time of a part varies more than its bytes.) The rate
    of all together stands for rates that can't be told apart."""
    edges, writers = _moving(written, [edge for begin, end, _ in (*written, *copied) for edge in (begin, end)])
    _, copies = _moving(copied, edges)
    share = np.diff(edges) / np.maximum(1, writers)
    own = np.array(written)
    had = []
    for one in (copies == 0, copies > 0):
        until = np.concatenate([[0.0], np.cumsum(share * one)])
        had.append(np.interp(own[:, 1], edges, until) - np.interp(own[:, 0], edges, until))
    seconds = np.stack(had)  # (2, parts) of the whole store, that each part has had without copies and beside them
    shares = seconds / seconds.sum(axis=0)
    try:
        alone, beside = np.linalg.solve(shares @ seconds.T, shares @ own[:, 2]).tolist()
    except np.linalg.LinAlgError:
        alone = beside = 0.0
    return (alone, beside) if min(alone, beside) > 0 else (rate(written), rate(written))


def _moving(moved: Sequence[tuple[float, float, int]], edges: Iterable[float]) -> tuple[np.ndarray, np.ndarray]:
    """The times in order, and how many threads move bytes between each and the next one."""
    times = np.unique(np.array(list(edges)))
    change = np.zeros(len(times))
    for column, by in ((0, 1), (1, -1)):
        at = np.searchsorted(times, [one[column] for one in moved])
        np.add.at(change, at, by)
    return times, np.cumsum(change)[:-1]


class PartWriter:
    """Writes checkpoints part by part. ``committed``: the steps whose files have all parts; ``gated``: bytes that had to be copied because
    an update came before they were written; ``written``: bytes of the writers; ``copies``: bytes that training has copied, without its
    waits for room."""

    def __init__(self, folder: Path, parts: Sequence[FilePart], room: Room, writers: int) -> None:
        self.committed: list[int] = []
        self.gated = 0
        self.written, self.copies = Moved(), Moved()
        self._folder, self._parts, self._room = folder, parts, room
        self._files: dict[int, _File] = {}
        self._kept: int | None = None  # the latest step that is committed
        self._spare: list[Path] = []  # files of older steps, to be written anew
        self._pieces: dict[tuple[int, int], _Piece] = {}
        self._lock, self._opening = threading.Lock(), threading.Lock()
        self._nbytes = max(part.offset + -(-part.nbytes // PAGE) * PAGE for part in parts)
        self._queue: queue.SimpleQueue[tuple[int, FilePart, _Piece] | None] = queue.SimpleQueue()
        self._failure: BaseException | None = None
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(writers)]
        for thread in self._threads:
            thread.start()

    def copied(self, step: int, part: FilePart, arrays: Sequence[np.ndarray]) -> None:
        """Copies a part of the checkpoint of ``step``. ``arrays``: those of its slices, as bytes."""
        buffer = self._copy(part, arrays)
        self._ready(step, part, lambda piece: setattr(piece, "buffer", buffer))

    def due(self, step: int, part: FilePart) -> None:
        """The window begins in which a part is to be written. Its copy may still be to come."""
        self._ready(step, part, lambda piece: setattr(piece, "due", True))

    def direct(self, step: int, part: FilePart, arrays: Sequence[np.ndarray]) -> None:
        """Writes a part without a copy. ``arrays`` are referenced until it is written, or until the gate."""
        piece = self._piece(step, part)
        piece.arrays, piece.due = arrays, True
        self._queue.put((step, part, piece))

    def gate(self, step: int, parts: Sequence[FilePart]) -> None:
        """To be called before the update of tensors that are written without a copy: copies what is not written yet."""
        for part in parts:
            piece = self._pieces.get((step, part.number))
            if piece is None:
                continue
            with piece.lock:
                if piece.arrays is not None and not piece.done.is_set():
                    piece.buffer, piece.arrays = self._copy(part, piece.arrays), None
                    self.gated += part.nbytes

    def close(self) -> None:
        """Waits for all that is to be written. Raises what has gone wrong in a thread."""
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()
        for step, file in self._files.items():
            os.close(file.descriptor)
            self._path(step, ".part").unlink()
        for path in self._spare:
            path.unlink()
        self._files.clear()
        self._spare.clear()
        if self._failure is not None:
            raise self._failure

    def _copy(self, part: FilePart, arrays: Sequence[np.ndarray]) -> mmap.mmap:
        """A buffer with a copy of the part."""
        buffer = self._room.take(part.nbytes)
        with self.copies.moving(part.nbytes):
            _gather(arrays, np.frombuffer(buffer, np.uint8))
        return buffer

    def _ready(self, step: int, part: FilePart, note: Callable[[_Piece], None]) -> None:
        with self._lock:
            piece = self._pieces.setdefault((step, part.number), _Piece())
            note(piece)
            ready = piece.due and piece.buffer is not None
        if ready:
            self._queue.put((step, part, piece))

    def _piece(self, step: int, part: FilePart) -> _Piece:
        with self._lock:
            return self._pieces.setdefault((step, part.number), _Piece())

    def _work(self) -> None:
        block = np.frombuffer(mmap.mmap(-1, CHUNK), np.uint8)
        while (task := self._queue.get()) is not None:
            try:
                self._write(*task, block)
            except BaseException as failure:
                self._failure = failure

    def _write(self, step: int, part: FilePart, piece: _Piece, block: np.ndarray) -> None:
        descriptor = self._open(step)
        with self.written.moving(part.nbytes):
            with piece.lock:
                arrays = piece.arrays
                if arrays is not None:
                    at = 0
                    for begin in range(0, part.nbytes, CHUNK):
                        nbytes = min(CHUNK, part.nbytes - begin)
                        _gather(arrays, block, begin, nbytes)
                        at += _put(descriptor, block, nbytes, part.offset + at)
                    piece.arrays = arrays = None
                    piece.done.set()
            if piece.buffer is not None:
                _put(descriptor, np.frombuffer(piece.buffer, np.uint8), part.nbytes, part.offset)
                self._room.give(piece.buffer, part.nbytes)
        self._end(step, part)

    def _open(self, step: int) -> int:
        # Not under the lock that training takes.
        with self._opening:
            file = self._files.get(step)
            if file is None:
                path = self._path(step, ".part")
                with self._lock:
                    spare = self._spare.pop() if self._spare else None
                if spare is not None:
                    spare.rename(path)
                descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_DIRECT, 0o600)
                if spare is None:
                    os.posix_fallocate(descriptor, 0, self._nbytes)
                file = self._files[step] = _File(descriptor, len(self._parts))
            return file.descriptor

    def _end(self, step: int, part: FilePart) -> None:
        with self._lock:
            self._pieces.pop((step, part.number))
            file = self._files[step]
            file.left -= 1
            if file.left:
                return
            del self._files[step]
        os.fdatasync(file.descriptor)
        os.close(file.descriptor)
        self._path(step, ".part").rename(self._path(step))
        with self._lock:
            self.committed.append(step)
            older, self._kept = sorted((step, step if self._kept is None else self._kept))
            if older != self._kept:
                self._spare.append(self._path(older))

    def _path(self, step: int, suffix: str = "") -> Path:
        return self._folder / f"step-{step:010d}{suffix}"


def _gather(arrays: Sequence[np.ndarray], into: np.ndarray, begin: int = 0, nbytes: int | None = None) -> None:
    """Copies bytes of several arrays, as if they were one, from byte ``begin`` on."""
    end = sum(len(array) for array in arrays) if nbytes is None else begin + nbytes
    at = 0
    for array in arrays:
        low, high = max(begin, at), min(end, at + len(array))
        if low < high:
            np.copyto(into[low - begin : high - begin], array[low - at : high - at])
        at += len(array)


def _put(descriptor: int, data: np.ndarray, nbytes: int, offset: int) -> int:
    """Writes the bytes, and what fills their last page up. Returns how many."""
    whole = -(-nbytes // PAGE) * PAGE
    done = 0
    while done < whole:
        done += os.pwrite(descriptor, memoryview(data)[done:whole], offset + done)
    return whole
