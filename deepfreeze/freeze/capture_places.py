"""The plan of all captures, which a backend is told before the first one; the plan gives each captured piece its place in the backend's
memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from deepfreeze.engine.backend import CaptureSize
from deepfreeze.engine.open_engine import OpenEngine
from deepfreeze.freeze.regions import FIXED, Regions

# Bytes of a cache line. Each piece outside of the regions begins one, because several threads write such pieces.
_CACHE_LINE = 64


@dataclass(frozen=True, eq=False)
class CapturePlan:
    """The arguments of ``Backend.plan``, which explains ``rows``, ``private_nbytes`` and ``side_nbytes``.

    ``outside``: the numbers of the pieces that are in no region of this rank (a seed, a variable that Keras does not save), int64. They lie
    behind the regions, ``outside_places`` bytes behind their end. ``piece``: of each region, as in ``Regions``; ``pieces``: how many there
    are."""

    rows: np.ndarray
    private_nbytes: int
    side_nbytes: int
    pieces: int
    piece: np.ndarray
    outside: np.ndarray
    outside_places: np.ndarray

    @classmethod
    def of(cls, regions: Regions, sizes: np.ndarray, private_nbytes: int) -> CapturePlan:
        """``sizes``: bytes of each piece, int64 of shape (pieces,); ``private_nbytes``: private bytes of each checkpoint."""
        rows = regions.rows(np.zeros(len(sizes), np.uint64))
        rows[:, 0] = 0
        outside = np.setdiff1d(np.arange(len(sizes)), regions.piece)
        padded = -(-sizes[outside] // _CACHE_LINE) * _CACHE_LINE
        ends = np.append(0, np.cumsum(padded))
        return cls(rows, private_nbytes, int(ends[-1]), len(sizes), regions.piece, outside, ends[:-1])

    def nbytes(self, size: CaptureSize, chunk_bytes: int) -> int:
        """Bytes of each capture in the memory of an engine with this ``Engine(chunk_bytes=)``. ``EngineFault`` for wrong regions."""
        return size(self.rows, self.private_nbytes, self.side_nbytes, chunk_bytes)

    def places(self, engine: OpenEngine) -> np.ndarray | None:
        """Tells the engine. Returns the offset in bytes of each piece within the memory of a capture: int64 of shape (pieces,); None if
        captures do not lie in the backend's memory. A variable that Keras saves in two datasets has two regions and is captured once, to
        the place of the first region. ``EngineError`` as ``OpenEngine.plan``."""
        planned = engine.plan(self.rows, self.private_nbytes, self.side_nbytes)
        if not planned:
            return None
        *of_regions, side = planned
        captured = self.piece != FIXED
        found = np.full(self.pieces, -1, np.int64)
        # Assigned from the last region to the first, so that the place of a piece's first region is the one that stays.
        found[self.piece[captured][::-1]] = np.array(of_regions, np.int64)[captured][::-1]
        found[self.outside] = side + self.outside_places
        return found
