"""Parts of a model file into memory, each extent checked against its checksum, large amounts by several threads at once.

Every extent that holds a wanted byte is read as a whole, because only a whole one can be checked. It is read piece by piece,
and each piece is checked while it is still in the processor's cache. A large extent that lies inside one landing is
read straight into it; small neighbours are read together and then copied.
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
from deepfreeze.thaw.source import Source, scratch

PIECE = 2 << 20  # in the cache of any processor of today, and one huge page
_ALONE = 512 << 10  # as much of small neighbours is read together; a larger extent is read on its own
_HOLE = 64 << 10  # what may be read without need between two small extents, rather than asking twice
_PARALLEL = 8 << 20  # below, one thread is done before another has started
_MOST_THREADS = 4  # more gained nothing

Checksum = Callable[[int, np.ndarray], int]


@dataclass(frozen=True, eq=False)
class Landing:
    """The file's bytes from ``offset`` on are wanted in ``data``, a uint8 array; ``name`` is for messages."""

    name: str
    offset: int
    data: np.ndarray

    @property
    def end(self) -> int:
        """Offset of the first byte behind it."""
        return self.offset + len(self.data)


@dataclass
class _Unit:
    """Extents ``first`` to ``last``, which are read together: the bytes from ``begin`` to ``end``, for ``landings``."""

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
    """All extents of one open model file: ``table`` has dtype ``EXTENT`` and is sorted by offset."""

    def __init__(self, table: np.ndarray, source: Source) -> None:
        self.source = source
        self._offsets: list[int] = table["offset"].tolist()
        self._ends: list[int] = (table["offset"] + table["nbytes"]).tolist()
        self._checksums: list[int] = table["crc32c"].tolist()
        # The checked bytes of the last extent that was wanted in part, by its number: small tensors may share one.
        self._kept: tuple[int, np.ndarray] = (-1, np.empty(0, np.uint8))

    def read(self, landings: Sequence[Landing]) -> None:
        """Fills all landings. CorruptError naming the first damage that was met; then their content means nothing."""
        with self.start(landings) as reading:
            reading.finish()

    def start(self, landings: Sequence[Landing]) -> Reading:
        """Begins to fill all landings in the background."""
        return Reading(self, sorted((x for x in landings if len(x.data)), key=lambda x: x.offset))

    def units(self, landings: Sequence[Landing]) -> list[_Unit]:
        """What to read for landings that are sorted and don't overlap."""
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
        """Reads, checks and copies one unit."""
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
    """Landings being filled. Leave its ``with`` before the file is closed; leaving early gives the rest up."""

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
        """Waits until all is read and checked. Raises CorruptError naming the first damage that was met."""
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


def _threads(units: Sequence[_Unit], nbytes: int, source: Source) -> int:
    """How many threads pay: one per core, which each copies and checks; a disk wants several requests at once."""
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
    """CRC32C, continued. Large amounts by the engine's if it is there: it lets other threads run meanwhile."""
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
