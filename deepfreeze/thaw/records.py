"""All records of a checkpoint, held against its manifest: which ranges of the model file have which checksums."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from deepfreeze.core import names
from deepfreeze.core.durable import unreadable
from deepfreeze.core.errors import CorruptError
from deepfreeze.core.fields import DAMAGED, read_small
from deepfreeze.core.manifest import Manifest
from deepfreeze.core.record import EXTENT, Record


def read_record(folder: Path, manifest: Manifest, rank: int) -> Record:
    """One rank's record. CorruptError if it is missing, damaged, or not the one that the manifest means."""
    file = folder / names.record_file(rank)
    entry = manifest.records[rank]
    try:
        data = read_small(file, entry.size)  # a hostile file may be larger than memory
        if len(data) != entry.size:
            raise CorruptError(where=file, expected=f"{entry.size} bytes", found=f"{len(data)} bytes", todo=DAMAGED)
        record = Record.from_bytes(data, file)
    except (FileNotFoundError, NotADirectoryError):
        raise CorruptError(where=file, expected=f"rank {rank}'s record", found="no such file", todo=DAMAGED) from None
    except OSError as error:
        raise unreadable(file, error) from error
    identity = record.identity
    expected = (manifest.run_id, manifest.attempt, manifest.structure, manifest.step, rank, manifest.world_size)
    found = (identity.run_id, identity.attempt, identity.structure, identity.step, identity.rank, identity.world_size)
    pairs = [
        ("run, attempt, structure, step, rank, world size", expected, found),
        ("file size", manifest.file_size, identity.file_size),
        ("CRC32C", f"{entry.crc32c:08x}", f"{record.crc32c:08x}"),
        ("extents, their bytes, private bytes",
         (entry.extents, entry.nbytes, entry.private),
         (len(record.extents), record.nbytes, len(record.private) + record.checksums.nbytes)),
    ]  # fmt: skip
    for what, wanted, got in pairs:
        if wanted != got:
            text = f"{what} {wanted} as in the manifest"
            raise CorruptError(where=file, expected=text, found=f"{got}", todo=DAMAGED)
    return record


def merge(records: list[Record]) -> np.ndarray:
    """The extents of all records, dtype ``EXTENT``, sorted by offset."""
    merged = np.concatenate([record.extents for record in records]) if records else np.empty(0, EXTENT)
    return merged[np.argsort(merged["offset"], kind="stable")]


def uncovered(extents: np.ndarray, file_size: int) -> list[tuple[str, int, int]]:
    """Where sorted extents don't cover [0, file_size) exactly once: ("missing" or "twice", offset, nbytes)."""
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
