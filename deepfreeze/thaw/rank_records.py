"""Reads the records of a committed checkpoint and holds each against the manifest. They lie in one file, ``records``, one behind the
other; a checkpoint of version 1 has a file for each rank."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from deepfreeze.errors import CorruptError, Error
from deepfreeze.format import names
from deepfreeze.format.manifest import Manifest, RecordEntry
from deepfreeze.format.record import Record
from deepfreeze.format.strict_json import DAMAGED
from deepfreeze.store.failures import unreadable
from deepfreeze.store.ranges import Ranges
from deepfreeze.store.run import Run


def file_of(manifest: Manifest, rank: int) -> str:
    """The name of the file that has the rank's record."""
    return names.RECORDS_FILE if manifest.gathered else names.record_file(rank)


def read_record(run: Run, manifest: Manifest, rank: int) -> Record:
    """One rank's record. CorruptError if its file is missing or damaged, or if its size, checksum or identity (run, attempt, step,
    ...) differ from those in the manifest."""
    return read_records(run, manifest, [rank])[0]


def read_records(run: Run, manifest: Manifest, ranks: Iterable[int] | None = None) -> list[Record]:
    """The records of ``ranks`` (None: of all ranks), in that order, all at once. Raises what ``read_record`` does."""
    return list(each_record(run, manifest, ranks))


def each_record(
    run: Run,
    manifest: Manifest,
    ranks: Iterable[int] | None = None,
    on_error: Callable[[int | None, Error], Any] | None = None,
) -> Iterator[Record]:
    """The records of ``ranks`` (None: of all ranks), in that order, read one by one: each may have 256 MiB. Opens one file, or one for
    each rank in version 1. Raises what ``read_record`` does; or, with ``on_error``, calls it with the rank (None: all ranks) and the
    error, and leaves that record out."""
    file, rank = None, None
    try:
        if manifest.gathered:
            file = _open(run, manifest)
        for rank in range(manifest.world_size) if ranks is None else ranks:
            try:
                record = _read(run, manifest, rank, file)
            except Error as error:
                if on_error is None:
                    raise
                on_error(rank, error)
            else:
                yield record
                del record  # its memory is free for the next one
    except Error as error:
        if on_error is None or rank is not None:
            raise
        on_error(None, error)
    finally:
        if file is not None:
            file.close()


def _open(run: Run, manifest: Manifest) -> Ranges:
    """The gathered records, open. CorruptError unless the file is there and has as many bytes as the manifest says."""
    name, size = run.step_file(manifest.step, names.RECORDS_FILE), manifest.offset(manifest.world_size)
    where = run.store.where(name)
    try:
        file = run.store.open(name)
    except (FileNotFoundError, NotADirectoryError):
        expected = "the records of all ranks"
        raise CorruptError(where=where, expected=expected, found="no such file", todo=DAMAGED) from None
    except OSError as error:
        raise unreadable(where, error) from error
    if file.size != size:
        file.close()
        raise CorruptError(where=where, expected=f"{size} bytes", found=f"{file.size} bytes", todo=DAMAGED)
    return file


def _read(run: Run, manifest: Manifest, rank: int, gathered: Ranges | None) -> Record:
    """The record of a rank, checked. ``gathered``: the records of all ranks; None in version 1."""
    name, entry = run.step_file(manifest.step, file_of(manifest, rank)), manifest.records[rank]
    file = run.store.where(name)
    try:
        at = manifest.offset(rank)
        data = gathered.get(at, entry.size) if gathered else run.store.read(name, entry.size)
        if len(data) != entry.size:
            raise CorruptError(where=file, expected=f"{entry.size} bytes", found=f"{len(data)} bytes", todo=DAMAGED)
        record = Record.from_bytes(data, file)
        _require_same(record, manifest, entry, file)
    except (FileNotFoundError, NotADirectoryError):
        raise CorruptError(where=file, expected=f"rank {rank}'s record", found="no such file", todo=DAMAGED) from None
    except OSError as error:
        raise unreadable(file, error) from error
    except Error as error:
        if gathered is not None:  # the file has the records of other ranks too
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
