"""Where each captured piece lies in the engine's memory."""

from __future__ import annotations

import numpy as np

from deepfreeze.freeze.bound_engine import BoundEngine
from deepfreeze.freeze.regions import FIXED, Regions

_LINE = 64  # bytes of a cache line: no two side pieces share one


def places(engine: BoundEngine, regions: Regions, sizes: np.ndarray, private_nbytes: int) -> np.ndarray:
    """Plans the engine's memory for these regions; returns the byte offset of each piece in it, int64 of shape (pieces,).

    ``sizes``: each piece's bytes, int64 of shape (pieces,). A piece in no region of this rank (a seed, a variable that Keras does
    not save) lies behind the regions. A tensor in two datasets is captured once, to the place of its first region.
    """
    rows = regions.rows(np.zeros(len(sizes), np.uint64))
    rows[:, 0] = 0
    found = np.full(len(sizes), -1, np.int64)
    beside = np.setdiff1d(np.arange(len(sizes)), regions.piece)
    padded = -(-sizes[beside] // _LINE) * _LINE
    *of_regions, side = engine.plan(rows, private_nbytes, int(padded.sum()))
    captured = regions.piece != FIXED
    # From the last region to the first: the first one's place stays.
    found[regions.piece[captured][::-1]] = np.array(of_regions, np.int64)[captured][::-1]
    found[beside] = side + np.append(0, np.cumsum(padded))[:-1]
    return found
