"""The engine as Python objects. Every call releases the GIL while it is in the library.

``Engine`` keeps no reference to the data it is given: whoever submits addresses or buffers keeps them alive and unchanged
until ``poll`` reports the step as released, or ``close`` has returned without an error.
"""

from __future__ import annotations

import ctypes as c
import os
from collections.abc import Iterable
from typing import Any, NamedTuple

from . import _table
from ._fault import EngineFault
from ._fault import check as _check
from ._library import library
from .area import Area

FOREVER = 2**63  # milliseconds; the engine cuts it to a year
_POLL = 64


class Report(NamedTuple):
    """``df_report``: what became of a step. With step -1 a notice for the user."""

    step: int
    level: int
    code: int
    released: bool
    diverged: int
    nbytes: int
    local_s: float
    written_s: float
    external_s: float
    message: str


class SlotInfo(NamedTuple):
    """``df_slot_info``; ids are ``bytes``."""

    step: int
    rank: int
    world: int
    file_size: int
    nbytes: int
    run_id: bytes
    attempt: bytes
    structure: bytes


def _milliseconds(timeout: float | None) -> int:
    return FOREVER if timeout is None else min(max(0, round(timeout * 1000)), FOREVER)


def _path(path: str | os.PathLike[str]) -> bytes:
    return os.fsencode(path)


def _array(value: bytes, size: int, name: str) -> c.Array:
    if len(value) != size:
        raise ValueError(f"{name}: expected {size} bytes; found {len(value)}")
    return (c.c_uint8 * size).from_buffer_copy(value)


def _address(data: Any) -> int:
    if isinstance(data, int):
        return data
    interface = getattr(data, "__array_interface__", None)
    if interface is not None:
        return interface["data"][0]  # numpy, read-only arrays too
    view = memoryview(data)
    if view.readonly:
        # ctypes gives no address of a read-only buffer except through bytes.
        if isinstance(data, bytes):
            return c.cast(c.c_char_p(data), c.c_void_p).value or 0
        raise TypeError("a read-only buffer must be given as its address, bytes or a numpy array")
    return c.addressof(c.c_char.from_buffer(view.cast("B"))) if view.nbytes else 0


def region_array(regions: Any) -> c.Array:
    """What ``submit`` hands to the library, to be built once and reused.

    From an iterable of ``(address or buffer, nbytes, file_offset)``; or, without a Python loop, from a C-contiguous numpy
    array of shape (n, 3) and dtype uint64, whose memory is used as it is. A ready array is returned unchanged.
    """
    if isinstance(regions, c.Array) and regions._type_ is _table.Region:
        return regions
    interface = getattr(regions, "__array_interface__", None)
    if interface is not None:
        shape = interface["shape"]
        if len(shape) != 2 or shape[1] != 3 or interface["typestr"] != "<u8" or interface.get("strides") is not None:
            raise ValueError("regions: expected a C-contiguous uint64 array of shape (n, 3)")
        array = (_table.Region * shape[0]).from_address(interface["data"][0])
        array.owner = regions  # the memory is the array's
        return array
    rows: Iterable[tuple[Any, int, int]] = regions
    entries = [_table.Region(_address(data), nbytes, offset) for data, nbytes, offset in rows]
    return (_table.Region * len(entries))(*entries)


class Engine:
    """One rank's engine; see ``df_engine_*`` in the header. May be used from several threads, but ``close`` comes last."""

    def __init__(
        self,
        *,
        run_dir: str | os.PathLike[str],
        local_dir: str | os.PathLike[str] | None,
        run_id: bytes,
        attempt: bytes,
        structure: bytes,
        file_size: int,
        rank: int = 0,
        world: int = 1,
        in_flight: int = 2,
        slots: int = 2,
        writers: int = 8,
        keep: int = 2,
        hashes: int = 0,
        refuse_diverged: int = _table.REFUSE_NONE,
        nice: int = 0,
        chunk_bytes: int = 4 << 20,
        commit_timeout: float = 600.0,
    ) -> None:
        self._handle = c.c_void_p()
        self._library = library()
        options = _table.COptions(
            struct_size=c.sizeof(_table.COptions),
            rank=rank,
            world=world,
            in_flight=in_flight,
            slots=slots,
            writers=writers,
            keep=keep,
            hashes=hashes,
            refuse_diverged=refuse_diverged,
            nice=nice,
            chunk_bytes=chunk_bytes,
            file_size=file_size,
            commit_timeout_ms=_milliseconds(commit_timeout),
            run_id=_array(run_id, 16, "run_id"),
            attempt=_array(attempt, 16, "attempt"),
            structure=_array(structure, 32, "structure"),
            run_dir=_path(run_dir),
            local_dir=None if local_dir is None else _path(local_dir),
        )
        _check(self._library.df_engine_open(c.byref(options), c.byref(self._handle)))

    @classmethod
    def open(cls, **options: Any) -> Engine:
        """A new engine with these options: those of the constructor. ``EngineFault`` if it can't be opened."""
        return cls(**options)

    @property
    def closed(self) -> bool:
        """Whether ``close`` was called."""
        return not self._handle

    def _open_handle(self) -> c.c_void_p:
        if not self._handle:
            raise EngineFault(_table.CLOSED, "the engine is closed")
        return self._handle

    def submit(self, step: int, regions: Any, private: bytes = b"", timeout: float | None = None) -> None:
        """Hands over a captured step. regions: anything ``region_array`` takes, sorted by file offset."""
        array = region_array(regions)
        code = self._library.df_engine_submit(
            self._open_handle(), step, array, len(array), private or None, len(private), _milliseconds(timeout)
        )
        _check(code)

    def plan(self, regions: Any, private_nbytes: int = 0, side_nbytes: int = 0) -> list[int]:
        """Fixes the regions of every capture into the engine's own memory (their addresses are not looked at). Returns where
        each lies in such a memory, and at the end where the ``side_nbytes`` begin that belong to no region."""
        array = region_array(regions)
        places = (c.c_uint64 * (len(array) + 1))()
        _check(
            self._library.df_engine_plan(self._open_handle(), array, len(array), private_nbytes, side_nbytes, places)
        )
        return list(places)

    def reserve(self, timeout: float | None = None) -> None:
        """Blocks until there is memory for the next capture, and keeps it."""
        _check(self._library.df_engine_reserve(self._open_handle(), _milliseconds(timeout)))

    def room(self) -> int:
        """How many more captures there would be memory for now, without waiting; what is reserved is not counted."""
        count = c.c_uint32()
        _check(self._library.df_engine_room(self._open_handle(), c.byref(count)))
        return count.value

    def attach(self, area: Area, timeout: float | None = None) -> None:
        """From its next capture on, the area's memory is this engine's. A capture waits for memory until no bytes have
        moved for ``timeout`` seconds."""
        _check(self._library.df_area_attach(area.number, self._open_handle(), _milliseconds(timeout)))

    def wait(self, step: int, level: int = _table.EXTERNAL, timeout: float | None = None) -> None:
        """Blocks until the step has reached the level (``LOCAL``, ``EXTERNAL``), at most ``timeout`` seconds. ``EngineFault``: the
        failed checkpoint's own, or ``TIMEOUT``."""
        _check(self._library.df_engine_wait(self._open_handle(), step, level, _milliseconds(timeout)))

    def poll(self) -> list[Report]:
        """What changed since the last call, oldest first. Never blocks."""
        reports: list[Report] = []
        count = c.c_size_t(_POLL)
        while count.value == _POLL:
            buffer = (_table.CReport * _POLL)()
            _check(self._library.df_engine_poll(self._open_handle(), buffer, _POLL, c.byref(count)))
            for r in buffer[: count.value]:
                message = r.message.decode(errors="replace")
                reports.append(
                    Report(
                        r.step,
                        r.level,
                        r.code,
                        bool(r.released),
                        r.diverged,
                        r.nbytes,
                        r.local_s,
                        r.written_s,
                        r.external_s,
                        message,
                    )
                )
        return reports

    def drain(self, timeout: float | None = None) -> None:
        """Blocks until every submitted step is committed or failed."""
        _check(self._library.df_engine_drain(self._open_handle(), _milliseconds(timeout)))

    def idle(self) -> float:
        """Seconds since bytes moved: this rank's, or another one's that it waits for."""
        count = c.c_uint64()
        _check(self._library.df_engine_idle(self._open_handle(), c.byref(count)))
        return count.value / 1000

    def close(self) -> None:
        """Stops at the next chunk and frees everything; may be called twice. Drain first to lose nothing."""
        handle, self._handle = self._handle, c.c_void_p()
        if handle:
            _check(self._library.df_engine_close(handle))

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        # Threads of a forgotten engine would go on reading memory that nobody holds any more.
        if getattr(self, "_handle", None):
            self.close()


def crc32c(data: Any, crc: int = 0) -> int:
    """CRC32C of a buffer, continuing from crc."""
    nbytes = getattr(data, "nbytes", None)
    return library().df_crc32c(crc, _address(data), len(data) if nbytes is None else nbytes)


def slot_inspect(path: str | os.PathLike[str]) -> SlotInfo:
    """The header of a whole slot. ``EngineFault`` if it is damaged, half-written, or of a newer version."""
    info = _table.CSlotInfo()
    _check(library().df_slot_inspect(_path(path), c.byref(info)))
    ids = (bytes(info.run_id), bytes(info.attempt), bytes(info.structure))
    return SlotInfo(info.step, info.rank, info.world, info.file_size, info.nbytes, *ids)


def slot_transfer(path: str | os.PathLike[str], run_dir: str | os.PathLike[str]) -> None:
    """Copies a dead attempt's slot into that attempt's partial directory of the run, checked, and publishes its record."""
    _check(library().df_slot_transfer(_path(path), _path(run_dir)))


def commit(run_dir: str | os.PathLike[str], step: int, attempt: bytes) -> None:
    """Commits a dead attempt's step (``attempt``: its id, 16 bytes) if all records are there and whole. ``EngineFault`` otherwise."""
    _check(library().df_commit(_path(run_dir), step, _array(attempt, 16, "attempt")))


def version() -> str:
    """The engine's version. ``LibraryError`` if there is no engine, or one of another version than these bindings."""
    return library().df_version().decode()
