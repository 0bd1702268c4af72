"""The checksums of a checkpoint's model file, range by range: from the records of all ranks, each compared with the manifest."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from deepfreeze.errors import CorruptError
from deepfreeze.format import names
from deepfreeze.format.manifest import Manifest
from deepfreeze.format.record import EXTENT, Record
from deepfreeze.format.strict_json import DAMAGED
from deepfreeze.format.structure import Structure
from deepfreeze.store.durable import unreadable
from deepfreeze.store.files import read_small
from deepfreeze.store.run import Run


@dataclass(frozen=True, eq=False)
class ExtentTable:
    """What the bytes of a checkpoint's model file must be. ``extents``: shape ``(extents,)``, dtype ``EXTENT``, the ranges of all
    records with their checksums, sorted by offset; together they cover every byte of the file once. ``private``: the bytes of rank
    0's per-rank tensors.

    One rank of a job reads it and sends it to the other ranks: if each of N ranks read all N records, the store would see N x N
    opened files."""

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
        records = [read_record(folder, manifest, rank) for rank in range(manifest.world_size)]
        extents = merge(records)
        for kind, offset, nbytes in uncovered(extents, manifest.file_size)[:1]:
            expected, found = "records that cover every byte once", f"bytes {offset} to {offset + nbytes} {kind}"
            raise _error(folder, expected, found)
        return cls(manifest, structure, extents, records[0].private)


def _error(folder: Path, expected: str, found: str) -> CorruptError:
    return CorruptError(where=folder / names.MODEL_FILE, expected=expected, found=found, todo=DAMAGED)


def read_record(folder: Path, manifest: Manifest, rank: int) -> Record:
    """One rank's record. CorruptError if its file is missing or damaged, or if its size, checksum or identity (run, attempt, step,
    ...) differ from those in the manifest."""
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
