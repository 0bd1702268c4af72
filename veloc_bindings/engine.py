"""The engine as Python objects. Every call releases the GIL while it is in the library.

``EmbeddedEngine`` keeps no reference to the memory that it is given. The caller of ``submit`` keeps addresses and buffers alive and
unchanged until ``poll`` reports the step as released, or ``close`` has returned without an error.

All timeouts are in seconds; None means to wait without a bound. A call that reaches its timeout raises ``EngineFault`` with the code
``TIMEOUT``, and may be made again.
"""

from __future__ import annotations

import ctypes as c
from collections.abc import Iterable
from typing import Any, NamedTuple

from . import _table
from ._fault import EngineFault
from ._fault import check as _check
from ._library import library
from ._options import c_options
from ._stats import as_dict
from ._values import address, milliseconds
from .area import Area

_POLL = 64  # reports that one call of the library returns at most


class Report(NamedTuple):
    """The state of a checkpoint (``df_report``); or, with ``step`` -1, a notice for the user in ``message``, which is a line of the
    engine's log if its ``level`` is ``INFORMS``.

    - ``level``: the level reached so far: ``CAPTURED``, ``LOCAL`` or ``EXTERNAL``. ``code``: ``OK``, or why the checkpoint failed.
    - ``released``: True once the engine no longer reads the memory that ``submit`` was given.
    - ``diverged``: the number of the first replica checksum in which the ranks differ, -1 if they differ in none; known to rank 0 alone.
    - ``nbytes``: bytes of this rank's regions.
    - ``local_s``, ``written_s``, ``external_s``: seconds from the submit until this rank's bytes were on the local tier, until they were
      durable on the external store, and until the commit; -1 if that has not happened.
    - ``message``: of the failure or notice, or in what the ranks differ; "" otherwise.
    - ``superseded_by``: with the code ``SUPERSEDED``, the newer step for which the checkpoint was given up; else of no meaning.
    - ``copy_s``: CPU seconds of the copies by which capture areas put the capture into the engine's memory; 0 for a capture that lies
      elsewhere.
    - ``cpu_s``: CPU seconds of the engine's threads since the checkpoint that was committed or failed before this one, or since the engine
      was opened; -1 until this one is committed or has failed.
    """

    step: int
    level: int
    code: int
    released: bool
    diverged: int = -1
    nbytes: int = 0
    local_s: float = -1.0
    written_s: float = -1.0
    external_s: float = -1.0
    message: str = ""
    copy_s: float = 0.0
    cpu_s: float = -1.0
    superseded_by: int = -1


class UnderWay(NamedTuple):
    """How far a checkpoint is that is neither committed nor failed (``df_progress``). ``level``: as in ``Report``; ``published``: whether
    this rank's part is durable on the external store, and the commit is to come; ``nbytes``: of the part; ``local_bytes``,
    ``external_bytes``: how many of them are on the local tier with their checksums, and written to the external store; ``age_s``: seconds
    since the submit; ``waits_for``: "waits for ...", "" if bytes are being written."""

    step: int
    level: int
    published: bool
    nbytes: int
    local_bytes: int
    external_bytes: int
    age_s: float
    waits_for: str


def region_array(regions: Any) -> c.Array:
    """Regions in the form in which the library takes them. ``submit`` and ``plan`` accept the result too, so it can be built once for many
    steps.

    ``regions`` is an iterable of ``(address or buffer, nbytes, file_offset)``; or, to do without a Python loop, a C-contiguous numpy
    array of shape ``(regions, 3)`` and dtype uint64 with the same three numbers in each row, whose memory is used as it is; or a result
    of this function, which is returned unchanged. ValueError for an array of another shape or dtype.
    """
    if isinstance(regions, c.Array) and regions._type_ is _table.Region:
        return regions
    interface = getattr(regions, "__array_interface__", None)
    if interface is not None:
        shape = interface["shape"]
        if len(shape) != 2 or shape[1] != 3 or interface["typestr"] != "<u8" or interface.get("strides") is not None:
            raise ValueError("regions: expected a C-contiguous uint64 array of shape (n, 3)")
        array = (_table.Region * shape[0]).from_address(interface["data"][0])
        array.owner = regions  # keeps the numpy array alive, whose memory this is
        return array
    rows: Iterable[tuple[Any, int, int]] = regions
    entries = [_table.Region(address(data), nbytes, offset) for data, nbytes, offset in rows]
    return (_table.Region * len(entries))(*entries)


def capture_size(regions: Any, private_nbytes: int, side_nbytes: int, chunk_bytes: int) -> int:
    """Bytes of each capture in the memory of an engine that is given this plan (``EmbeddedEngine.plan``) and has this ``chunk_bytes``.
    ``EngineFault`` for wrong regions."""
    array = region_array(regions)
    nbytes = c.c_uint64()
    _check(library().df_capture_size(array, len(array), private_nbytes, side_nbytes, chunk_bytes, c.byref(nbytes)))
    return nbytes.value


class EmbeddedEngine:
    """One rank's engine (``df_engine_*`` in ``native/include/deepfreeze/deepfreeze.h``). Every method may be called from any thread, also
    while another call is under way, except ``close``, which comes last. After ``close`` the methods raise ``EngineFault`` with the code
    ``CLOSED``.

    The options of the constructor are the fields of ``df_options``, which the header explains. ``run_dir``, ``run_id``, ``attempt``,
    ``structure`` and ``file_size`` are needed; ``run_id`` and ``attempt`` are 16 bytes, ``structure`` (the structure's hash) 32.
    ``local_dir`` is None without a local tier. ``node`` is a sequence of ranks. ``commit_timeout`` is in seconds, 600 if it is left out.
    The other numbers are 0 if they are left out, but for ``world`` (1), ``in_flight`` and ``slots`` (2), ``writers`` (8) and
    ``chunk_bytes`` (4 MiB).
    """

    def __init__(self, **options: Any) -> None:
        """See the class. ``TypeError``, ``ValueError`` as ``_options.c_options``; ``EngineFault`` if the engine can't be opened."""
        self._handle = c.c_void_p()
        self._library = library()
        _check(self._library.df_engine_open(c.byref(c_options(**options)), c.byref(self._handle)))

    @classmethod
    def open(cls, **options: Any) -> EmbeddedEngine:
        """A new engine, with the options of the constructor. ``EngineFault`` if it can't be opened."""
        return cls(**options)

    @property
    def closed(self) -> bool:
        """Whether ``close`` was called."""
        return not self._handle

    def _open_handle(self) -> c.c_void_p:
        if not self._handle:
            raise EngineFault(_table.CLOSED, "the engine is closed")
        return self._handle

    def submit(
        self, step: int, regions: Any, private: bytes = b"", timeout: float | None = None, values: bytes = b""
    ) -> None:
        """Hands over the captured regions of a step. Returns at once, and the engine writes in the background; while ``in_flight``
        checkpoints are in memory already, the call first waits, at most ``timeout`` seconds.

        ``step``: greater than in the call before. ``regions``: anything ``region_array`` takes, sorted by file offset, in whole pages of
        4096 bytes. ``private`` and ``values``: this rank's private bytes, and its named values as a section of docs/format.md; both
        are copied before the call returns. ``EngineFault`` for wrong regions or values, and with ``TIMEOUT`` if the step was not taken."""
        array = region_array(regions)
        own = (private or None, len(private), values or None, len(values))
        code = self._library.df_engine_submit(self._open_handle(), step, array, len(array), *own, milliseconds(timeout))
        _check(code)

    def fail(self, step: int, message: str) -> None:
        """To be called in place of ``submit`` on a rank that has no capture of ``step``: the step fails on all ranks, and the other ranks
        need not wait for this one. ``message``: why, for people. Returns at once."""
        _check(self._library.df_engine_fail(self._open_handle(), step, message.encode(errors="replace")))

    def plan(self, regions: Any, private_nbytes: int = 0, side_nbytes: int = 0) -> list[int]:
        """Tells the engine, once, which regions every capture into its own memory will have, so that it can make the memory. Their
        addresses are ignored.

        Returns ``regions + 1`` offsets in bytes: the place of each region in the memory of a capture, then the place of ``side_nbytes``
        bytes that belong to no region. ``private_nbytes``: private bytes of each checkpoint. ``EngineFault`` for wrong regions."""
        array = region_array(regions)
        places = (c.c_uint64 * (len(array) + 1))()
        _check(
            self._library.df_engine_plan(self._open_handle(), array, len(array), private_nbytes, side_nbytes, places)
        )
        return list(places)

    def reserve(self, timeout: float | None = None) -> None:
        """Waits until there is memory for the first groups of the next capture, and reserves the capture's memory. The capture waits for
        the other groups' memory itself, and without this call for all of it."""
        _check(self._library.df_engine_reserve(self._open_handle(), milliseconds(timeout)))

    def room(self) -> int:
        """The number of captures for which there is memory at present; memory that is reserved already is not counted. Never waits."""
        count = c.c_uint32()
        _check(self._library.df_engine_room(self._open_handle(), c.byref(count)))
        return count.value

    def attach(self, area: Area, timeout: float | None = None) -> None:
        """Gives the area this engine's memory, from its next capture on. A capture for which there is no memory waits; it fails when the
        engine has moved no bytes for ``timeout`` seconds."""
        _check(self._library.df_area_attach(area.number, self._open_handle(), milliseconds(timeout)))

    def wait(self, step: int, level: int = _table.EXTERNAL, timeout: float | None = None) -> None:
        """Waits until the checkpoint of ``step`` has reached the level, ``LOCAL`` or ``EXTERNAL``. ``EngineFault`` with the checkpoint's
        code and message if it has failed, and with ``TIMEOUT`` after ``timeout`` seconds."""
        _check(self._library.df_engine_wait(self._open_handle(), step, level, milliseconds(timeout)))

    def poll(self) -> list[Report]:
        """The reports of the checkpoints that have changed since the last call, oldest first. A checkpoint that is released, and committed
        or failed, is reported for the last time. Never waits."""
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
                        r.copy_s,
                        r.cpu_s,
                        r.superseded_by,
                    )
                )
        return reports

    def progress(self) -> list[UnderWay]:
        """How far the unfinished checkpoints are, the oldest first. Changes nothing, and never waits."""
        found, count = (_table.CProgress * _POLL)(), c.c_size_t()
        _check(self._library.df_engine_progress(self._open_handle(), found, _POLL, c.byref(count)))
        return [
            UnderWay(
                one.step,
                one.level,
                bool(one.published),
                one.nbytes,
                one.local_bytes,
                one.external_bytes,
                one.age_s,
                one.waits_for.decode(errors="replace"),
            )
            for one in found[: count.value]
        ]

    def supersede(self, step: int, by: int) -> None:
        """Gives up the checkpoint of ``step``, because the newer one of the step ``by`` is committed. Rank 0 alone calls it; the other
        ranks learn of it from the store. A step that is over, or held, is passed over. Returns at once. ``EngineFault`` with ``INVALID`` if
        ``by`` is not newer, and on another rank."""
        _check(self._library.df_engine_supersede(self._open_handle(), step, by))

    def hold(self, step: int | None) -> bool:
        """Holds the checkpoint of ``step``: this rank does not begin to write it, or a newer one, to the external store before the next
        call for another step, or ``drain``. None holds no checkpoint. Returns whether ``step`` is held: False if its writing has begun, or
        if it is the oldest unfinished step. Never waits."""
        held = c.c_int32()
        _check(self._library.df_engine_hold(self._open_handle(), -1 if step is None else step, c.byref(held)))
        return bool(held.value)

    def replace(self, step: int, by: int) -> None:
        """Gives up the checkpoint of ``step``, which every rank holds, for the one of the newer step ``by`` that is to come. Every rank
        calls it. ``EngineFault`` with ``INVALID`` if ``by`` is not newer, or this rank does not hold the step. Never waits."""
        _check(self._library.df_engine_replace(self._open_handle(), step, by))

    def remove(self, steps: Iterable[int]) -> None:
        """Has the committed checkpoints of these steps removed, in the background. A step without one is passed over; a removal that fails
        becomes a notice of ``poll``. Returns at once. ``EngineFault`` with ``INVALID`` on other ranks than rank 0."""
        chosen = list(steps)
        array = (c.c_int64 * len(chosen))(*chosen)
        _check(self._library.df_engine_remove(self._open_handle(), array, len(chosen)))

    def tune(self, writers: int, transfers: int, uncommitted: int) -> None:
        """Sets how many of the ``writers``, ``transfers`` and ``uncommitted`` checkpoints that the engine was opened with it uses from now
        on. Each is at least 1 and at most the option of the constructor; ``uncommitted`` may be 0, for as many as the engine was opened
        with, and any number if the option is 0. Work that has begun goes on. Never waits. ``EngineFault`` with ``INVALID`` for another
        number: then no number is changed."""
        _check(self._library.df_engine_tune(self._open_handle(), writers, transfers, uncommitted))

    def drain(self, timeout: float | None = None) -> None:
        """Waits until every submitted checkpoint is committed or failed, and what ``remove`` was told of is removed. ``EngineFault`` with
        ``TIMEOUT``, naming the rank that it still waits for, after ``timeout`` seconds."""
        _check(self._library.df_engine_drain(self._open_handle(), milliseconds(timeout)))

    def idle(self) -> float:
        """Seconds since something moved last: bytes of this rank's checkpoints, or a sign of another rank that this one waits for. Never
        waits."""
        count = c.c_uint64()
        _check(self._library.df_engine_idle(self._open_handle(), c.byref(count)))
        return count.value / 1000

    def stats(self) -> dict[str, Any]:
        """What the engine has counted since it was opened (``df_stats``): numbers by the names of the struct, with ``wait_s`` and
        ``pause_s`` in seconds, a dict of numbers each for ``external`` and ``local``, and ``threads``: CPU seconds by the thread's name."""
        found = _table.CStats(struct_size=c.sizeof(_table.CStats))
        _check(self._library.df_engine_stats(self._open_handle(), c.byref(found)))
        return as_dict(found)

    def close(self) -> None:
        """Stops writing at the next chunk, ends the engine's threads and frees the engine. May be called twice. Call ``drain`` before:
        a checkpoint that is neither committed nor whole on the local tier is lost.

        ``EngineFault`` with ``TIMEOUT`` if the store hangs: the memory that was submitted and not released must then stay unchanged
        until the process ends, because a thread may still read it."""
        handle, self._handle = self._handle, c.c_void_p()
        if handle:
            _check(self._library.df_engine_close(handle))

    def __enter__(self) -> EmbeddedEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        # The threads of an engine that nobody has closed would go on reading memory that may be freed.
        if getattr(self, "_handle", None):
            self.close()
