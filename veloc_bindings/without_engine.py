"""The calls of the library that need no engine: about slots and runs, and about the library itself."""

from __future__ import annotations

import ctypes as c
import os
from typing import Any, NamedTuple

from . import _table
from ._fault import check as _check
from ._library import library
from ._values import address, byte_array, milliseconds, path_bytes


class SlotInfo(NamedTuple):
    """The header of a slot (``df_slot_info``). ``file_size``: of the model file; ``nbytes``: of the slot's extents, both in bytes;
    ``run_id`` and ``attempt``: 16 bytes; ``structure``: the structure's hash, 32 bytes."""

    step: int
    rank: int
    world: int
    file_size: int
    nbytes: int
    run_id: bytes
    attempt: bytes
    structure: bytes


def crc32c(data: Any, crc: int = 0) -> int:
    """The CRC32C of a buffer, as an int. ``crc``: the checksum of the bytes before the buffer, if it continues some; 0 otherwise."""
    nbytes = getattr(data, "nbytes", None)
    return library().df_crc32c(crc, address(data), len(data) if nbytes is None else nbytes)


def slot_inspect(path: str | os.PathLike[str]) -> SlotInfo:
    """Reads the header of a slot. ``EngineFault`` if the slot is damaged, half-written, or of a newer version."""
    info = _table.CSlotInfo()
    _check(library().df_slot_inspect(path_bytes(path), c.byref(info)))
    ids = (bytes(info.run_id), bytes(info.attempt), bytes(info.structure))
    return SlotInfo(info.step, info.rank, info.world, info.file_size, info.nbytes, *ids)


def slot_transfer(path: str | os.PathLike[str], run_dir: str | os.PathLike[str]) -> None:
    """Copies a dead attempt's slot into that attempt's partial directory in the run, compares every checksum, and publishes the rank's
    record. May be called again. ``EngineFault`` with ``CORRUPT`` for a damaged slot, with ``IO`` or ``NO_SPACE`` if the system refuses."""
    _check(library().df_slot_transfer(path_bytes(path), path_bytes(run_dir)))


def commit(run_dir: str | os.PathLike[str], step: int, attempt: bytes) -> None:
    """Commits the checkpoint of a dead attempt's step, if all ranks' records are there and the model file has their checksums. ``attempt``:
    its id, 16 bytes. May be called again. ``EngineFault`` with ``INCOMPLETE`` if records are missing, ``CORRUPT`` if bytes are wrong,
    ``DIVERGED`` if the ranks differ, ``IO`` or ``NO_SPACE`` if the system refuses."""
    _check(library().df_commit(path_bytes(run_dir), step, byte_array(attempt, 16, "attempt")))


def probe(
    run_dir: str | os.PathLike[str], writers: int, nbytes: int, chunk_bytes: int, seconds: float
) -> tuple[float, float]:
    """The rates of durable writes to ``run_dir``, in bytes per second: past the page cache, and through it. A rate is 0.0 if the file
    system can't write in that way; both are 0.0 if it is memory. The probe writes at most ``nbytes`` bytes, at least six of
    ``chunk_bytes``, by ``writers`` threads, to a file that it removes. It begins no chunk after ``seconds``. ``EngineFault`` if the system
    refuses."""
    direct, cached = c.c_double(), c.c_double()
    sizes = writers, nbytes, chunk_bytes, milliseconds(seconds)
    _check(library().df_probe(path_bytes(run_dir), *sizes, c.byref(direct), c.byref(cached)))
    return direct.value, cached.value


def newest(run_dir: str | os.PathLike[str]) -> int | None:
    """The step of the newest committed checkpoint in a run; None if there is none. Takes no lock. ``EngineFault`` with ``IO`` if the system
    refuses."""
    step = c.c_int64()
    _check(library().df_newest(path_bytes(run_dir), c.byref(step)))
    return step.value if step.value >= 0 else None


def version() -> str:
    """The engine's version. ``LibraryError`` if there is no engine, or one of another version than these bindings."""
    return library().df_version().decode()
