"""Finds the pages of a checkpoint's model file, or its granules, that more than one rank has written, by the checkpoint's records."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from deepfreeze.store.run import Run
from deepfreeze.thaw.rank_records import read_record

PAGE = 4096


def shared(run: Path, step: int, page: int = PAGE) -> list[int]:
    """The numbers of the pages of so many bytes that have bytes of more than one rank, sorted."""
    opened = Run.open(run)
    manifest = opened.manifest(step)
    owner = np.full(-(-manifest.file_size // page), -1)
    found = set()
    for rank in range(manifest.world_size):
        extents = read_record(opened, manifest, rank).extents
        for offset, nbytes in zip(extents["offset"].tolist(), extents["nbytes"].tolist(), strict=True):
            mine = np.arange(offset // page, -(-(offset + nbytes) // page))
            found |= set(mine[(owner[mine] != -1) & (owner[mine] != rank)].tolist())
            owner[mine] = rank
    return sorted(found)
