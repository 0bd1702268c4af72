"""The place of each captured piece in a backend's memory."""

from __future__ import annotations

import numpy as np

from deepfreeze.freeze.bound_backend import BoundBackend
from deepfreeze.freeze.regions import FIXED, Regions

# Bytes of a cache line. Each piece outside of the regions begins one, because several threads write such pieces.
_CACHE_LINE = 64


def places(backend: BoundBackend, regions: Regions, sizes: np.ndarray, private_nbytes: int) -> np.ndarray | None:
    """Tells the backend which regions each capture will have. Returns the offset in bytes of each piece within the memory of a capture:
    int64 of shape (pieces,); None if captures do not lie in the backend's memory.

    ``sizes``: bytes of each piece, int64 of shape (pieces,); ``private_nbytes``: private bytes of each checkpoint. A piece that is in no
    region of this rank (a seed, a variable that Keras does not save) lies behind the regions. A variable that Keras saves in two
    datasets has two regions and is captured once, to the place of the first region. ``EngineError`` as ``BoundBackend.plan``.
    """
    rows = regions.rows(np.zeros(len(sizes), np.uint64))
    rows[:, 0] = 0
    found = np.full(len(sizes), -1, np.int64)
    outside = np.setdiff1d(np.arange(len(sizes)), regions.piece)
    padded = -(-sizes[outside] // _CACHE_LINE) * _CACHE_LINE
    planned = backend.plan(rows, private_nbytes, int(padded.sum()))
    if not planned:
        return None
    *of_regions, side = planned
    captured = regions.piece != FIXED
    # Assigned from the last region to the first, so that the place of a piece's first region is the one that stays.
    found[regions.piece[captured][::-1]] = np.array(of_regions, np.int64)[captured][::-1]
    found[outside] = side + np.append(0, np.cumsum(padded))[:-1]
    return found
