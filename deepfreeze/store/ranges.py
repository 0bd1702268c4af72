"""Reads ranges of one file of a store."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path

import numpy as np

from deepfreeze.errors import CorruptError
from deepfreeze.format.strict_json import DAMAGED
from deepfreeze.store.failures import unreadable

PAGE = 4096


def scratch(nbytes: int) -> np.ndarray:
    """A buffer, uint8, for ``Ranges.fill`` and ``Ranges.fetch`` of at most ``nbytes``. It begins on a page and is two pages longer,
    because reading past the page cache (O_DIRECT) reads whole pages."""
    data = np.empty(nbytes + 3 * PAGE, np.uint8)
    skip = -data.ctypes.data % PAGE
    return data[skip : skip + nbytes + 2 * PAGE]


class Ranges(ABC):
    """An open file of ``size`` bytes; ``path``: for messages. Several threads may use it, each with a ``scratch`` buffer of its own."""

    path: Path
    size: int

    @abstractmethod
    def read(self, into: np.ndarray, offset: int) -> int:
        """Reads the file's bytes from ``offset`` on into ``into``, uint8. Returns how many came: at least one, 0 at the file's end. OSError
        if they can't be read."""

    @abstractmethod
    def close(self) -> None:
        """Closes the file. May be called again."""

    @property
    @abstractmethod
    def closed(self) -> bool:
        """Whether ``close`` was called."""

    def get(self, offset: int, nbytes: int) -> bytes:
        """``nbytes`` bytes from ``offset`` on; fewer where the file ends. OSError if they can't be read."""
        data = np.empty(nbytes, np.uint8)
        done = 0
        while done < nbytes and (n := self.read(data[done:], offset + done)):
            done += n
        return data[:done].tobytes()

    def behind_hole(self, offset: int) -> int:
        """Where the hole ends in which ``offset`` lies: a range of zeros of a sparse file, for which the store has no block and which may
        be far longer than the disk. ``offset`` itself where there is no hole, or the store does not tell."""
        return offset

    def past_cache(self) -> None:  # noqa: B027  most stores have no cache
        """From now on, bytes that this machine does not have in memory are read so that they take no memory but the caller's, if the store
        has a way."""

    def is_cold(self, offset: int, nbytes: int) -> bool:
        """Whether ``past_cache`` was called and this machine does not have the range in memory, as far as is known."""
        return False

    def fill(self, into: np.ndarray, offset: int, spare: np.ndarray) -> None:
        """Fills ``into``, uint8, with the file's bytes from ``offset`` on. ``spare``: a ``scratch`` of ``len(into)`` bytes or more.
        CorruptError if the file ends before; RunError if it can't be read."""
        done = 0
        while done < len(into):
            try:
                n = self.read(into[done:], offset + done)
            except OSError as error:
                raise unreadable(self.path, error) from error
            if n == 0:
                found = f"the end at byte {offset + done}"
                raise CorruptError(where=self.path, expected=f"{self.size} bytes", found=found, todo=DAMAGED)
            done += n

    def fetch(self, begin: int, end: int, spare: np.ndarray) -> np.ndarray:
        """The file's bytes from ``begin`` to ``end``, as a part of ``spare``, a ``scratch`` of ``end - begin`` bytes or more: the next
        call overwrites them. Raises what ``fill`` does."""
        Ranges.fill(self, spare[: end - begin], begin, spare)
        return spare[: end - begin]
