"""Ranges of a file on a file system: from the page cache where they are in it, else, if the caller allows it, straight from the disk.

Bytes that are not cached can be read through the page cache, which takes as much memory again, and on many machines fresh memory is
slower than the disk. So a lone reader reads them past the cache (O_DIRECT). Several ranks of a node that all read the same file do
not: the first one fills the cache, the disk is read once.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
from pathlib import Path

import numpy as np

from deepfreeze.store.ranges import PAGE, Ranges

_libc = ctypes.CDLL(None)


class PosixRanges(Ranges):
    """An open file. ``fd`` is this object's to close."""

    def __init__(self, fd: int, path: Path) -> None:
        self.path, self.size = path, os.fstat(fd).st_size
        self._fd = fd
        self._direct = -1
        self._map: mmap.mmap | None = None
        self._address = 0

    def read(self, into: np.ndarray, offset: int) -> int:
        return os.preadv(self._fd, [into.data], offset)

    def get(self, offset: int, nbytes: int) -> bytes:
        data = os.pread(self._fd, nbytes, offset)
        while 0 < len(data) < nbytes and (more := os.pread(self._fd, nbytes - len(data), offset + len(data))):
            data += more
        return data

    def behind_hole(self, offset: int) -> int:
        try:
            # This moves the descriptor's own offset, by which nobody reads.
            return os.lseek(self._fd, offset, os.SEEK_DATA)
        except OSError as error:
            return max(offset, self.size) if error.errno == errno.ENXIO else offset

    @property
    def closed(self) -> bool:
        return self._fd < 0

    def close(self) -> None:
        fds, self._fd, self._direct = (self._fd, self._direct), -1, -1
        self._map = None
        for fd in fds:
            if fd >= 0:
                os.close(fd)

    def past_cache(self) -> None:
        if self._direct >= 0:
            return
        with contextlib.suppress(OSError, ValueError):
            self._direct = os.open(f"/proc/self/fd/{self._fd}", os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECT)
            # Mapped to ask what is cached; no byte of the mapping is ever touched.
            self._map = mmap.mmap(self._fd, self.size, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)
            self._address = np.frombuffer(self._map, np.uint8).ctypes.data

    def is_cold(self, offset: int, nbytes: int) -> bool:
        # The page in the range's middle stands for the range: the system caches and drops pages in long runs.
        if self._map is None:
            return False
        page = (offset + nbytes // 2) // PAGE * PAGE
        answer = ctypes.c_ubyte(1)
        _libc.mincore(ctypes.c_void_p(self._address + page), ctypes.c_size_t(PAGE), ctypes.byref(answer))
        return not answer.value & 1

    def fill(self, into: np.ndarray, offset: int, spare: np.ndarray) -> None:
        if not self.is_cold(offset, len(into)):
            super().fill(into, offset, spare)
            return
        whole = len(into) // PAGE * PAGE
        if offset % PAGE or into.ctypes.data % PAGE:
            whole = 0
        done = self._read_direct(into[:whole], offset)
        if done < len(into):
            into[done:] = self.fetch(offset + done, offset + len(into), spare)

    def fetch(self, begin: int, end: int, spare: np.ndarray) -> np.ndarray:
        if self.is_cold(begin, end - begin):
            first = begin // PAGE * PAGE
            wanted = -(-end // PAGE) * PAGE - first
            # At the file's end less comes than was asked for, and it is enough.
            if self._read_direct(spare[:wanted], first) >= end - first:
                return spare[begin - first : end - first]
        return super().fetch(begin, end, spare)

    def _read_direct(self, into: np.ndarray, offset: int) -> int:
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
