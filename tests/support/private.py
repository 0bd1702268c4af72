"""What one rank has saved for itself: the per-rank tensors of a checkpoint."""

from __future__ import annotations

import os

import numpy as np

from deepfreeze.errors import NotFoundError
from deepfreeze.store.catalog import choose
from deepfreeze.store.run import Run
from deepfreeze.thaw.rank_records import file_of, read_record
from deepfreeze.thaw.read import split_private


def read_private(run: str | os.PathLike[str], step: int | str | None = None, rank: int = 0) -> dict[str, np.ndarray]:
    """The per-rank tensors by name, read-only, as ``rank`` of the job that wrote the checkpoint (the newest for ``step=None``) saved
    them. NotFoundError if that job had no such rank, or there is no such run or checkpoint; CorruptError if a file is damaged."""
    opened_run = Run.open(run)
    chosen = choose(opened_run, step)
    manifest = opened_run.manifest(chosen)
    folder = opened_run.step_path(chosen)
    if not 0 <= rank < manifest.world_size:
        raise NotFoundError(
            where=folder,
            expected=f"a rank from 0 to {manifest.world_size - 1}",
            found=f"rank {rank}",
            todo="choose a rank of the job that wrote the checkpoint",
        )
    structure = opened_run.structure(manifest.structure)
    record = read_record(opened_run, manifest, rank)
    return split_private(structure, record.private, folder / file_of(manifest, rank))
