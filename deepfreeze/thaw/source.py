"""Reads the bytes of a model file: from the page cache where they are in it, else, if the caller allows it, straight from the disk.

Bytes that are not cached can be read through the page cache, which takes as much memory again, and on many machines fresh memory is
slower than the disk. So a lone reader reads them past the cache (O_DIRECT). Several ranks of a node that all read the same file do
not: the first one fills the cache, the disk is read once.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
from pathlib import Path

import numpy as np

from deepfreeze.errors import CorruptError
from deepfreeze.format.strict_json import DAMAGED
from deepfreeze.store.durable import unreadable

PAGE = 4096
_libc = ctypes.CDLL(None)


def scratch(nbytes: int) -> np.ndarray:
    """A buffer, uint8, for ``Source.fill`` and ``Source.fetch`` of at most ``nbytes``. It begins on a page and is two pages longer,
    because O_DIRECT reads whole pages."""
    data = np.empty(nbytes + 3 * PAGE, np.uint8)
    skip = -data.ctypes.data % PAGE
    return data[skip : skip + nbytes + 2 * PAGE]


class Source:
    """An open file of ``size`` bytes; ``fd`` stays the caller's to close. Several threads may use it, each with a ``scratch`` buffer of
    its own."""

    def __init__(self, fd: int, path: Path, size: int) -> None:
        self.path, self.size = path, size
        self._fd = fd
        self._direct = -1
        self._map: mmap.mmap | None = None
        self._address = 0

    def allow_direct(self) -> None:
        """From now on, ranges that are not in the page cache are read past it, where the file system can."""
        if self._direct >= 0:
            return
        with contextlib.suppress(OSError, ValueError):
            self._direct = os.open(f"/proc/self/fd/{self._fd}", os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECT)
            # Mapped to ask what is cached; no byte of the mapping is ever touched.
            self._map = mmap.mmap(self._fd, self.size, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)
            self._address = np.frombuffer(self._map, np.uint8).ctypes.data

    def close(self) -> None:
        """Releases what ``allow_direct`` opened. May be called again."""
        direct, self._direct = self._direct, -1
        self._map = None
        if direct >= 0:
            os.close(direct)

    def fill(self, into: np.ndarray, offset: int, spare: np.ndarray) -> None:
        """Fills ``into``, uint8, with the file's bytes from ``offset`` on. ``spare``: a ``scratch`` of ``len(into)`` bytes or more.
        CorruptError if the file ends before; RunError if it can't be read."""
        if not self.is_cold(offset, len(into)):
            self._buffered(into, offset)
            return
        whole = len(into) // PAGE * PAGE
        if offset % PAGE or into.ctypes.data % PAGE:
            whole = 0
        done = self._past_cache(into[:whole], offset)
        if done < len(into):
            into[done:] = self.fetch(offset + done, offset + len(into), spare)

    def fetch(self, begin: int, end: int, spare: np.ndarray) -> np.ndarray:
        """The file's bytes from ``begin`` to ``end``, as a part of ``spare``, a ``scratch`` of ``end - begin`` bytes or more: the next
        call overwrites them. Raises what ``fill`` does."""
        if self.is_cold(begin, end - begin):
            first = begin // PAGE * PAGE
            wanted = -(-end // PAGE) * PAGE - first
            # At the file's end less comes than was asked for, and it is enough.
            if self._past_cache(spare[:wanted], first) >= end - first:
                return spare[begin - first : end - first]
        self._buffered(spare[: end - begin], begin)
        return spare[: end - begin]

    def _past_cache(self, into: np.ndarray, offset: int) -> int:
        """Reads by O_DIRECT; returns how many bytes came. Fewer than ``into`` has where the file ends, or where the file system or the
        disk refuses; the caller reads the rest through the page cache."""
        done = 0
        while done < len(into) and not done % PAGE:
            try:
                n = os.preadv(self._direct, [into[done:].data], offset + done)
            except OSError:
                break  # buffered reading knows what is wrong, if anything is
            if n == 0:
                break
            done += n
        return done

    def _buffered(self, into: np.ndarray, offset: int) -> None:
        done = 0
        while done < len(into):
            try:
                n = os.preadv(self._fd, [into[done:].data], offset + done)
            except OSError as error:
                raise unreadable(self.path, error) from error
            if n == 0:
                found = f"the end at byte {offset + done}"
                raise CorruptError(where=self.path, expected=f"{self.size} bytes", found=found, todo=DAMAGED)
            done += n

    def is_cold(self, offset: int, nbytes: int) -> bool:
        """Whether ``allow_direct`` was called and the page in the range's middle is not in the page cache. One page stands for the
        range: the system caches and drops pages in long runs."""
        if self._map is None:
            return False
        page = (offset + nbytes // 2) // PAGE * PAGE
        answer = ctypes.c_ubyte(1)
        _libc.mincore(ctypes.c_void_p(self._address + page), ctypes.c_size_t(PAGE), ctypes.byref(answer))
        return not answer.value & 1
