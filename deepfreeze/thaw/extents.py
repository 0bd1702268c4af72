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


@dataclass(frozen=True, eq=False)
class Landing:
    """Where a part of the file is wanted in memory. ``data``: uint8, shape ``(nbytes,)``, is to become the file's bytes from ``offset``
    on; ``name``: of the tensor, for messages."""

    name: str
    offset: int
    data: np.ndarray

    @property
    def end(self) -> int:
        """Offset of the first byte behind it."""
        return self.offset + len(self.data)


@dataclass
class _Unit:
    """What one thread reads at a time: the extents number ``first`` to ``last``, which are the file's bytes from ``begin`` to ``end``,
    and the ``landings`` that want bytes of them, sorted by offset."""

    first: int
    last: int
    begin: int
    end: int
    landings: list[Landing]

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

    def read(self, landings: Sequence[Landing]) -> None:
        """Fills all landings. CorruptError if an extent does not have its checksum, naming the damaged one that lies first in the file
        of those that were met; the landings then hold anything."""
        with self.start(landings) as reading:
            reading.finish()

    def start(self, landings: Sequence[Landing]) -> Reading:
        """Begins to fill all landings by threads in the background; ``Reading.finish`` waits for them. Landings don't overlap."""
        return Reading(self, sorted((x for x in landings if len(x.data)), key=lambda x: x.offset))

    def units(self, landings: Sequence[Landing]) -> list[_Unit]:
        """The units that hold all bytes of these landings, which are sorted by offset and don't overlap."""
        found: list[_Unit] = []
        number = 0
        for landing in landings:
            if found and landing.offset < found[-1].end:
                found[-1].landings.append(landing)
            number = max(number, bisect_right(self._offsets, landing.offset) - 1)
            while number < len(self._offsets) and self._offsets[number] < landing.end:
                begin, end = self._offsets[number], self._ends[number]
                if found and end - found[-1].begin <= min(PIECE, _ALONE) and begin - found[-1].end <= _HOLE:
                    found[-1].last, found[-1].end = number, end
                    if found[-1].landings[-1] is not landing:
                        found[-1].landings.append(landing)
                else:
                    found.append(_Unit(number, number, begin, end, [landing]))
                number += 1
        return found

    def do(self, unit: _Unit, spare: np.ndarray, checksum: Checksum) -> None:
        """Reads and checks one unit, and puts its bytes into its landings. ``spare``: the calling thread's scratch buffer."""
        only = unit.landings[0]
        if unit.first < unit.last:
            self._together(unit, spare, checksum)
        elif only.offset <= unit.begin and unit.end <= only.end:
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
        behind = iter(unit.landings)
        landing = next(behind)
        for number in range(unit.first, unit.last + 1):
            begin, end = self._offsets[number], self._ends[number]
            while landing.end <= begin:
                landing = next(behind)
            if landing.offset < end:  # else it was read by the way, in a hole
                self._check(number, checksum(0, data[begin - unit.begin : end - unit.begin]), landing)
        _copy(data, unit.begin, unit.landings)

    def _partly(self, unit: _Unit, spare: np.ndarray, checksum: Checksum) -> None:
        number, kept = self._kept
        if number == unit.first:
            _copy(kept, unit.begin, unit.landings)
            return
        crc = 0
        for at in range(unit.begin, unit.end, PIECE):
            data = self.source.fetch(at, min(at + PIECE, unit.end), spare)
            crc = checksum(crc, data)
            _copy(data, at, unit.landings)
        self._check(unit.first, crc, unit.landings[0])
        if unit.size <= PIECE:
            self._kept = (unit.first, data.copy())

    def _check(self, number: int, crc: int, landing: Landing) -> None:
        wanted = self._checksums[number]
        if crc != wanted:
            place = f"{landing.name} (bytes {self._offsets[number]} to {self._ends[number]})"
            expected = f"CRC32C {wanted:08x} for {place}"
            raise CorruptError(where=self.source.path, expected=expected, found=f"{crc:08x}", todo=DAMAGED)


class Reading:
    """Landings that threads are filling. Use it in a ``with`` that ends before the file is closed: its end waits for the threads, and
    where ``finish`` was not called the units that no thread has begun are not read."""

    def __init__(self, extents: Extents, landings: Sequence[Landing]) -> None:
        self._extents = extents
        units = extents.units(landings)
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


def _copy(data: np.ndarray, begin: int, landings: Sequence[Landing]) -> None:
    """Copies the file's bytes from ``begin`` on to where they are wanted."""
    for landing in landings:
        low, high = max(begin, landing.offset), min(begin + len(data), landing.end)
        if low < high:
            landing.data[low - landing.offset : high - landing.offset] = data[low - begin : high - begin]


def _checksum(nbytes: int) -> Checksum:
    """The function that continues a CRC32C, for ``nbytes`` in all. For large amounts the engine's, if its library is there: other
    Python threads run while it does."""
    if nbytes < _PARALLEL:
        return crc32c.extend
    try:
        import veloc_bindings

        veloc_bindings.crc32c(b"")
    except (ImportError, OSError):
        return crc32c.extend

    def checksum(crc: int, data: np.ndarray) -> int:
        # Changing threads costs more than a small range.
        if len(data) < _ALONE:
            return crc32c.extend(crc, data)
        return veloc_bindings.crc32c(data, crc)

    return checksum
