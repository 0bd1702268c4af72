"""Reads parts of a model file into memory and checks each extent against its checksum; 8 MiB and more by several threads at once.

An extent is read as a whole even if one byte of it is wanted, because its checksum is that of all its bytes. It is read in pieces
of 2 MiB, and the checksum takes in each piece while that is in the processor's cache. A large extent goes straight to where it is
wanted; small neighbours are read together into a buffer, and copied from there.
"""

from __future__ import annotations

import os
import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol

import numpy as np

from deepfreeze.errors import CorruptError
from deepfreeze.format import crc32c
from deepfreeze.format.strict_json import DAMAGED
from deepfreeze.store.ranges import Ranges, scratch

PIECE = 2 << 20  # in the cache of any processor of today, and one huge page
_ALONE = 512 << 10  # as much of small neighbours is read together; a larger extent is read on its own
_HOLE = 64 << 10  # what may be read without need between two small extents, rather than asking twice
_PARALLEL = 8 << 20  # below, one thread is done before another has started
_MOST_THREADS = 4  # more gained nothing

Checksum = Callable[[int, np.ndarray], int]


class Stretch(Protocol):
    """A part of a file that is to be read and checked. ``name``: of its tensor, for messages; ``end``: offset of the first byte behind
    it."""

    @property
    def name(self) -> str: ...

    @property
    def offset(self) -> int: ...

    @property
    def end(self) -> int: ...

    def take(self, data: np.ndarray, offset: int) -> None:
        """Is given bytes of the file, uint8, from ``offset`` on, of which any may lie in the part. They are another's after the call."""


@dataclass(frozen=True, eq=False)
class Landing:
    """A part that is wanted in memory. ``data``: uint8, shape ``(nbytes,)``, is to become the file's bytes from ``offset`` on."""

    name: str
    offset: int
    data: np.ndarray

    @property
    def end(self) -> int:
        return self.offset + len(self.data)

    def take(self, data: np.ndarray, offset: int) -> None:
        low, high = max(offset, self.offset), min(offset + len(data), self.end)
        if low < high:
            self.data[low - self.offset : high - self.offset] = data[low - offset : high - offset]


@dataclass(frozen=True, eq=False)
class Passage:
    """A part that is checked and not kept: it is read piece by piece, and takes no memory, however long it is."""

    name: str
    offset: int
    nbytes: int

    @property
    def end(self) -> int:
        return self.offset + self.nbytes

    def take(self, data: np.ndarray, offset: int) -> None:
        pass


@dataclass
class _Unit:
    """What one thread reads at a time: the extents number ``first`` to ``last``, which are the file's bytes from ``begin`` to ``end``,
    and the ``parts`` that want bytes of them, sorted by offset."""

    first: int
    last: int
    begin: int
    end: int
    parts: list[Stretch]

    @property
    def size(self) -> int:
        """In bytes."""
        return self.end - self.begin


class Extents:
    """All extents of one open model file. ``table``: shape ``(extents,)``, dtype ``EXTENT``, sorted by offset."""

    def __init__(self, table: np.ndarray, source: Ranges) -> None:
        self.source = source
        self._offsets: list[int] = table["offset"].tolist()
        self._ends: list[int] = (table["offset"] + table["nbytes"]).tolist()
        self._checksums: list[int] = table["crc32c"].tolist()
        # The checked bytes of the last extent that was wanted in part, by its number: small tensors may share one.
        self._kept: tuple[int, np.ndarray] = (-1, np.empty(0, np.uint8))

    def read(self, parts: Sequence[Stretch]) -> None:
        """Reads all parts. CorruptError if an extent does not have its checksum, naming the damaged one that lies first in the file
        of those that were met; landings then hold anything."""
        with self.start(parts) as reading:
            reading.finish()

    def start(self, parts: Sequence[Stretch]) -> Reading:
        """Begins to read all parts by threads in the background; ``Reading.finish`` waits for them. Parts don't overlap."""
        return Reading(self, sorted((x for x in parts if x.offset < x.end), key=lambda x: x.offset))

    def units(self, parts: Sequence[Stretch]) -> list[_Unit]:
        """The units that hold all bytes of these parts, which are sorted by offset and don't overlap."""
        found: list[_Unit] = []
        number = 0
        for part in parts:
            if found and part.offset < found[-1].end:
                found[-1].parts.append(part)
            number = max(number, bisect_right(self._offsets, part.offset) - 1)
            while number < len(self._offsets) and self._offsets[number] < part.end:
                begin, end = self._offsets[number], self._ends[number]
                if found and end - found[-1].begin <= min(PIECE, _ALONE) and begin - found[-1].end <= _HOLE:
                    found[-1].last, found[-1].end = number, end
                    if found[-1].parts[-1] is not part:
                        found[-1].parts.append(part)
                else:
                    found.append(_Unit(number, number, begin, end, [part]))
                number += 1
        return found

    def do(self, unit: _Unit, spare: np.ndarray, checksum: Checksum) -> None:
        """Reads and checks one unit, and gives its bytes to its parts. ``spare``: the calling thread's scratch buffer."""
        only = unit.parts[0]
        if unit.first < unit.last:
            self._together(unit, spare, checksum)
        elif isinstance(only, Landing) and only.offset <= unit.begin and unit.end <= only.end:
            self._straight(unit, only, spare, checksum)
        else:
            self._partly(unit, spare, checksum)

    def _straight(self, unit: _Unit, landing: Landing, spare: np.ndarray, checksum: Checksum) -> None:
        crc = 0
        for at in range(unit.begin, unit.end, PIECE):
            into = landing.data[at - landing.offset : min(at + PIECE, unit.end) - landing.offset]
            self.source.fill(into, at, spare)
            crc = checksum(crc, into)
        self._check(unit.first, crc, landing)

    def _together(self, unit: _Unit, spare: np.ndarray, checksum: Checksum) -> None:
        data = self.source.fetch(unit.begin, unit.end, spare)
        behind = iter(unit.parts)
        part = next(behind)
        for number in range(unit.first, unit.last + 1):
            begin, end = self._offsets[number], self._ends[number]
            while part.end <= begin:
                part = next(behind)
            if part.offset < end:  # else it was read by the way, in a hole
                self._check(number, checksum(0, data[begin - unit.begin : end - unit.begin]), part)
        _give(data, unit.begin, unit.parts)

    def _partly(self, unit: _Unit, spare: np.ndarray, checksum: Checksum) -> None:
        number, kept = self._kept
        if number == unit.first:
            _give(kept, unit.begin, unit.parts)
            return
        crc = 0
        for at in range(unit.begin, unit.end, PIECE):
            data = self.source.fetch(at, min(at + PIECE, unit.end), spare)
            crc = checksum(crc, data)
            _give(data, at, unit.parts)
        self._check(unit.first, crc, unit.parts[0])
        if unit.size <= PIECE:
            self._kept = (unit.first, data.copy())

    def _check(self, number: int, crc: int, part: Stretch) -> None:
        wanted = self._checksums[number]
        if crc != wanted:
            place = f"{part.name} (bytes {self._offsets[number]} to {self._ends[number]})"
            expected = f"CRC32C {wanted:08x} for {place}"
            raise CorruptError(where=self.source.path, expected=expected, found=f"{crc:08x}", todo=DAMAGED)


class Reading:
    """Parts that threads are reading. Use it in a ``with`` that ends before the file is closed: its end waits for the threads, and
    where ``finish`` was not called the units that no thread has begun are not read."""

    def __init__(self, extents: Extents, parts: Sequence[Stretch]) -> None:
        self._extents = extents
        units = extents.units(parts)
        self._ahead = deque(units)
        self._failed: list[tuple[int, BaseException]] = []
        nbytes = sum(unit.size for unit in units)
        self._checksum = _checksum(nbytes)
        self._threads: list[threading.Thread] = []
        for _ in range(_threads(units, nbytes, extents.source)):
            thread = threading.Thread(target=self._work, name="deepfreeze-read", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                break  # no more are to be had: those that run do it all
            self._threads.append(thread)

    def finish(self) -> None:
        """Waits until all is read and checked (reads it itself where there is no thread). Raises what ``Extents.read`` does."""
        if not self._threads:
            self._work()
        for thread in self._threads:
            thread.join()
        if self._failed:
            raise min(self._failed, key=lambda failure: failure[0])[1]

    def __enter__(self) -> Reading:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ahead.clear()
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        spare = scratch(PIECE)
        while True:
            try:
                unit = self._ahead.popleft()
            except IndexError:
                return
            try:
                self._extents.do(unit, spare, self._checksum)
            except BaseException as error:  # finish() raises it
                self._failed.append((unit.begin, error))
                self._ahead.clear()
                return


def _threads(units: Sequence[_Unit], nbytes: int, source: Ranges) -> int:
    """How many threads to read with; 0: ``finish`` reads. From the page cache as many as there are cores, because copying and checking
    keep a core busy; from a disk four, because a disk is faster with several requests at once."""
    if nbytes < _PARALLEL:
        return 0
    cold = source.is_cold(units[0].begin, units[0].size)
    return min(_MOST_THREADS, len(units), _MOST_THREADS if cold else len(os.sched_getaffinity(0)))


def _give(data: np.ndarray, begin: int, parts: Sequence[Stretch]) -> None:
    """Gives the file's bytes from ``begin`` on to the parts that want them."""
    for part in parts:
        part.take(data, begin)


def _checksum(nbytes: int) -> Checksum:
    """The function that continues a CRC32C, for ``nbytes`` in all. For large amounts the engine's, if its library is there: other
    Python threads run while it does."""
    if nbytes < _PARALLEL:
        return crc32c.extend
    try:
        from deepfreeze.engine.checksums import crc32c as of_engine

        of_engine(b"")
    except (ImportError, OSError):
        return crc32c.extend

    def checksum(crc: int, data: np.ndarray) -> int:
        # Changing threads costs more than a small range.
        if len(data) < _ALONE:
            return crc32c.extend(crc, data)
        return of_engine(data, crc)

    return checksum
