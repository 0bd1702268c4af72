"""Reads the records of a committed checkpoint and holds each against the manifest. They lie in one file, ``records``, one behind the
other; a checkpoint of version 1 has a file for each rank."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from deepfreeze.errors import CorruptError, Error
from deepfreeze.format import names
from deepfreeze.format.manifest import Manifest, RecordEntry
from deepfreeze.format.record import Record
from deepfreeze.format.strict_json import DAMAGED
from deepfreeze.store.durable import unreadable
from deepfreeze.store.files import open_file, read_small


def file_of(manifest: Manifest, rank: int) -> str:
    """The name of the file that has the rank's record."""
    return names.RECORDS_FILE if manifest.gathered else names.record_file(rank)


def read_record(folder: Path, manifest: Manifest, rank: int) -> Record:
    """One rank's record. CorruptError if its file is missing or damaged, or if its size, checksum or identity (run, attempt, step,
    ...) differ from those in the manifest."""
    return read_records(folder, manifest, [rank])[0]


def read_records(
    folder: Path,
    manifest: Manifest,
    ranks: Iterable[int] | None = None,
    on_error: Callable[[int | None, Error], Any] | None = None,
) -> list[Record]:
    """The records of ``ranks`` (None: of all ranks), in that order. Opens one file, or one for each rank in version 1. Raises what
    ``read_record`` does; or, with ``on_error``, calls it with the rank (None: all ranks) and the error, and leaves that record out."""
    found: list[Record] = []
    fd, rank = -1, None
    try:
        if manifest.gathered:
            fd = _open(folder / names.RECORDS_FILE, manifest.offset(manifest.world_size))
        for rank in range(manifest.world_size) if ranks is None else ranks:
            try:
                found.append(_read(folder, manifest, rank, fd))
            except Error as error:
                if on_error is None:
                    raise
                on_error(rank, error)
    except Error as error:
        if on_error is None or rank is not None:
            raise
        on_error(None, error)
    finally:
        if fd >= 0:
            os.close(fd)
    return found


def _open(file: Path, size: int) -> int:
    """A descriptor of the gathered records. CorruptError unless the file is there and has ``size`` bytes."""
    try:
        fd = open_file(file)
    except (FileNotFoundError, NotADirectoryError):
        expected = "the records of all ranks"
        raise CorruptError(where=file, expected=expected, found="no such file", todo=DAMAGED) from None
    except OSError as error:
        raise unreadable(file, error) from error
    found = os.fstat(fd).st_size
    if found != size:
        os.close(fd)
        raise CorruptError(where=file, expected=f"{size} bytes", found=f"{found} bytes", todo=DAMAGED)
    return fd


def _read(folder: Path, manifest: Manifest, rank: int, fd: int) -> Record:
    """The record of a rank, checked. ``fd``: of the gathered records; -1 in version 1."""
    file = folder / file_of(manifest, rank)
    entry = manifest.records[rank]
    try:
        data = os.pread(fd, entry.size, manifest.offset(rank)) if fd >= 0 else read_small(file, entry.size)
        if len(data) != entry.size:
            raise CorruptError(where=file, expected=f"{entry.size} bytes", found=f"{len(data)} bytes", todo=DAMAGED)
        record = Record.from_bytes(data, file)
        _require_same(record, manifest, entry, file)
    except (FileNotFoundError, NotADirectoryError):
        raise CorruptError(where=file, expected=f"rank {rank}'s record", found="no such file", todo=DAMAGED) from None
    except OSError as error:
        raise unreadable(file, error) from error
    except Error as error:
        if fd >= 0:  # the file has the records of other ranks too
            raise type(error)(
                where=error.where,
                expected=f"{error.expected} of rank {rank}'s record",
                found=error.found,
                todo=error.todo,
            ) from None
        raise
    return record


def _require_same(record: Record, manifest: Manifest, entry: RecordEntry, file: Path) -> None:
    """CorruptError (at ``file``) unless the record is the one that the manifest's entry describes."""
    identity = record.identity
    expected = (manifest.run_id, manifest.attempt, manifest.structure, manifest.step, entry.rank, manifest.world_size)
    found = (identity.run_id, identity.attempt, identity.structure, identity.step, identity.rank, identity.world_size)
    pairs = [
        ("run, attempt, structure, step, rank, world size", expected, found),
        ("file size", manifest.file_size, identity.file_size),
        ("CRC32C", f"{entry.crc32c:08x}", f"{record.crc32c:08x}"),
        ("extents, their bytes, private bytes, bytes of values",
         (entry.extents, entry.nbytes, entry.private, entry.values),
         (len(record.extents), record.nbytes, len(record.private) + record.checksums.nbytes, record.values_size)),
    ]  # fmt: skip
    for what, wanted, got in pairs:
        if wanted != got:
            text = f"{what} {wanted} as in the manifest"
            raise CorruptError(where=file, expected=text, found=f"{got}", todo=DAMAGED)
