"""The checksums of a checkpoint's model file, range by range: from the records of all ranks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from deepfreeze.errors import CorruptError
from deepfreeze.format import names
from deepfreeze.format.manifest import Manifest
from deepfreeze.format.record import EXTENT, Record
from deepfreeze.format.strict_json import DAMAGED
from deepfreeze.format.structure import Structure
from deepfreeze.store.run import Run
from deepfreeze.thaw.rank_records import each_record


@dataclass(frozen=True, eq=False)
class ExtentTable:
    """What the bytes of a checkpoint's model file must be. ``extents``: shape ``(extents,)``, dtype ``EXTENT``, the ranges of all
    records with their checksums, sorted by offset; together they cover every byte of the file once. ``private``: the bytes of rank
    0's per-rank tensors.

    One rank of a job reads it and sends it to the other ranks: the store is then asked once for the records of all ranks."""

    manifest: Manifest
    structure: Structure
    extents: np.ndarray
    private: bytes

    @classmethod
    def read(cls, run: Run, step: int) -> ExtentTable:
        """Reads the manifest, the structure and every rank's record. NotFoundError if there is no checkpoint of ``step``;
        CorruptError, naming the file, if one of these is damaged or the records don't cover the model file exactly once."""
        manifest = run.manifest(step)
        structure = run.structure(manifest.structure)
        folder = run.step_path(step)
        if structure.file_size != manifest.file_size:
            raise _error(folder, f"{manifest.file_size} bytes (manifest)", f"{structure.file_size} (structure)")
        # Only the needed part of each record is kept: it may have attachments of hundreds of MiB.
        kept = list(map(_extents_and_private, each_record(run, manifest)))
        extents = merge(of_rank for of_rank, _ in kept)
        for kind, offset, nbytes in uncovered(extents, manifest.file_size)[:1]:
            expected, found = "records that cover every byte once", f"bytes {offset} to {offset + nbytes} {kind}"
            raise _error(folder, expected, found)
        return cls(manifest, structure, extents, kept[0][1])


def _extents_and_private(record: Record) -> tuple[np.ndarray, bytes]:
    """The record's extents, and the bytes of its per-rank tensors if it is rank 0's."""
    return record.extents, record.private if record.identity.rank == 0 else b""


def _error(folder: Path, expected: str, found: str) -> CorruptError:
    return CorruptError(where=folder / names.MODEL_FILE, expected=expected, found=found, todo=DAMAGED)


def merge(extents: Iterable[np.ndarray]) -> np.ndarray:
    """The extents of several records (each dtype ``EXTENT``) as one array, sorted by offset."""
    merged = np.concatenate([np.empty(0, EXTENT), *extents])
    return merged[np.argsort(merged["offset"], kind="stable")]


def uncovered(extents: np.ndarray, file_size: int) -> list[tuple[str, int, int]]:
    """The ranges of a file of ``file_size`` bytes that sorted extents leave out or cover twice, as (``"missing"`` or ``"twice"``,
    offset, nbytes); [] if they cover each byte once."""
    found = []
    end = 0
    for offset, nbytes in zip(extents["offset"].tolist(), extents["nbytes"].tolist(), strict=True):
        if offset > end:
            found.append(("missing", end, offset - end))
        elif offset < end:
            found.append(("twice", offset, min(end, offset + nbytes) - offset))
        end = max(end, offset + nbytes)
    if end < file_size:
        found.append(("missing", end, file_size - end))
    return found
