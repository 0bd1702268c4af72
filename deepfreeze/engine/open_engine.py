"""An engine of one rank, from its opening to its end. Hands captured shards to a backend without a copy, and keeps their memory alive
until the backend no longer reads it. Here is all that is the same for every backend, and what holds where a backend can't do something.

A backend reads a capture where it lies. Python holds a reference to the objects that own the memory, and drops the reference when
the backend reports the step as released. Imports no framework: a backend takes addresses, whoever owns the memory.
"""

from __future__ import annotations

import contextlib
import ctypes
import time
from collections.abc import Callable, Iterable
from typing import Any, cast

import numpy as np

from deepfreeze.engine.backend import BackendKind, Holding, Opening, OwnMemory, Superseding, Telling, Tuning
from deepfreeze.engine.faults import EngineFault, Faults
from deepfreeze.engine.records import OK, SUPERSEDED, TIMEOUT, Report, UnderWay
from deepfreeze.errors import EngineError, UnsupportedError, WaitError
from deepfreeze.format.levels import Level
from deepfreeze.notices import Notify
from veloc_bindings import Area

# The longest wait of one call of a backend, in seconds. Python handles Ctrl-C only between two calls.
_SLICE = 1.0


class OpenEngine:
    """One rank's open engine: a backend, with the owners of the memory that it still reads. The training thread calls all methods but
    ``remove``, ``supersede`` and ``progress``, which any thread may call, though not beside ``close``.

    Every method raises ``EngineError`` if the backend fails. The waits (``submit``, ``reserve``, ``wait``) end with a ``WaitError`` when
    no bytes have moved for the time-out, on this rank or on a rank that it waits for. They may take longer while bytes move."""

    def __init__(self, kind: BackendKind, opening: Opening, notify: Notify) -> None:
        """Opens a backend of this ``kind``. ``notify``: is told if the backend can't be closed. ``EngineError`` if it can't be opened,
        ``UnsupportedError`` if it can't keep a bound that the opening asks for."""
        _require(kind, opening)
        self._where = opening.target.run
        self._timeout, self._notify = opening.timeout, notify
        self._faults = Faults(self._where, self._timeout)
        self._owners: dict[int, Any] = {}  # step -> the object that owns the memory of its capture
        self._unfinished: set[int] = set()
        self._drained = (
            False  # since the last poll there was a removal: it may have left notices, though nothing is in flight
        )
        with self.translated("an engine"):
            backend = kind.open(opening)
        self._backend, can = backend, kind.can
        self._memory = cast(OwnMemory, backend) if can.memory else None
        self._holding = cast(Holding, backend) if can.holds else None
        self._superseding = cast(Superseding, backend) if can.supersedes else None
        self._tuning = cast(Tuning, backend) if can.tunes else None
        self._telling = cast(Telling, backend) if can.tells else None
        self._in_flight = opening.engine.counted().in_flight or 0
        self._uncommitted = opening.engine.uncommitted

    def translated(self, expected: str) -> contextlib.AbstractContextManager[None]:
        """See ``Faults.translated``."""
        return self._faults.translated(expected)

    @property
    def unfinished(self) -> list[int]:
        """The steps that were submitted and were neither committed nor failed at the last ``poll``, in ascending order."""
        return sorted(self._unfinished)

    def submit(self, step: int, regions: np.ndarray, private: bytes, hold: Any, values: bytes = b"") -> None:
        """Hands over the capture of one step, which the backend writes in the background. ``regions``: the rows of ``Regions.rows``;
        ``private``: this rank's private bytes; ``hold``: the object, or a tuple of the objects, that own the memory of the regions;
        ``values``: this rank's named values, as a section.

        Waits first while ``in_flight`` checkpoints are in memory already.
        """
        self._owners[step] = hold
        try:
            with self.translated(f"to take step {step}"):
                self._wait_in_slices(lambda timeout: self._backend.submit(step, regions, private, timeout, values))
        except EngineError:
            del self._owners[step]
            raise
        self._unfinished.add(step)

    def fail(self, step: int, message: str) -> None:
        """Tells the other ranks, in the background, that this rank has no capture of ``step`` to submit: the step fails on all ranks at
        once. Never waits."""
        with self.translated(f"to fail step {step}"):
            self._backend.fail(step, message)
        self._unfinished.add(step)

    def plan(self, regions: np.ndarray, private_nbytes: int, side_nbytes: int) -> list[int]:
        """See ``Backend.plan``. ``EngineError`` for wrong regions."""
        with self.translated("a plan of the engine's memory"):
            return self._backend.plan(regions, private_nbytes, side_nbytes)

    def attach(self, area: Area) -> None:
        """Gives ``area`` the backend's memory, from the area's next capture on. Only after ``plan``, and only if the backend has memory."""
        assert self._memory is not None  # the backend's kind has said so, before the train function was traced
        with self.translated("captures into the engine's memory"):
            self._memory.attach(area, self._timeout)

    def room(self) -> int:
        """The number of captures for which there is memory now, without the memory that is reserved already. Never waits."""
        if self._memory is None:
            room = self._in_flight - len(self._owners)
            return max(0, room if self._uncommitted is None else min(room, self._uncommitted - len(self._unfinished)))
        with self.translated("how much memory is free"):
            return self._memory.room()

    def reserve(self) -> None:
        """Waits until there is memory for the first groups of the next capture, and reserves the capture's memory. Only where captures lie
        in the backend's memory."""
        assert self._memory is not None
        with self.translated("memory for the next capture"):
            self._wait_in_slices(self._memory.reserve)

    def wait(self, step: int, level: int) -> None:
        """Waits until the checkpoint of ``step`` has reached ``level`` (``format/levels``), or is given up for a newer one. ``EngineError``
        if the checkpoint has failed, ``WaitError`` if the wait has ended."""

        def wait(seconds: float) -> None:
            try:
                self._backend.wait(step, level, seconds)
            except EngineFault as fault:
                if fault.code != SUPERSEDED:
                    raise

        with self.translated(f"step {step} to be protected"):
            self._wait_in_slices(wait)

    def poll(self) -> tuple[list[Report], bool]:
        """The reports of the checkpoints that have changed since the last call, and whether all is well: whether they tell of progress
        alone, and not of a failure, of ranks that differ, or of something that the user should know. Drops the owners of the memory that
        the backend no longer reads. Never waits."""
        reports: list[Report] = []
        if self._unfinished or self._owners or self._drained:  # not always: this is asked after each execution
            with self.translated("reports of what is in flight"):
                reports = self._backend.poll()
        self._drained, well = False, True
        for report in reports:
            if report.released:
                self._owners.pop(report.step, None)
            if report.code != OK or report.level == Level.EXTERNAL:
                self._unfinished.discard(report.step)
            if report.code != OK or report.diverged >= 0 or report.step < 0:
                well = False
        return reports, well

    def drain(self, seconds: float) -> bool:
        """Waits, for at most ``seconds``, until every submitted checkpoint is committed or failed. Returns whether that is so. The caller
        repeats the call while it returns False, and ends the wait by ``stalled`` and ``give_up``. Raises ``EngineError``."""
        try:
            self._backend.drain(seconds)
        except EngineFault as fault:
            if fault.code == TIMEOUT:
                self._last_wait = fault
                return False
            raise self._faults.error(fault, "everything in flight to be committed") from fault
        self._drained = True
        return True

    def hold(self, step: int | None) -> bool:
        """See ``Holding.hold``. Returns False if the backend can't hold steps."""
        if self._holding is None:
            return False
        with self.translated("to hold a step"):
            return self._holding.hold(step)

    def replace(self, step: int, by: int) -> None:
        """See ``Holding.replace``."""
        assert self._holding is not None
        with self.translated(f"to give step {step} up"):
            self._holding.replace(step, by)

    def tune(self, writers: int, transfers: int, uncommitted: int) -> None:
        """See ``Tuning.tune``. Does nothing if the backend has no such numbers."""
        if self._tuning is not None:
            with self.translated("other numbers of writers, transfers and uncommitted checkpoints"):
                self._tuning.tune(writers, transfers, uncommitted)

    def supersede(self, step: int, by: int) -> None:
        """See ``Superseding.supersede``. Does nothing if the backend takes every checkpoint to its end."""
        if self._superseding is not None:
            with self.translated(f"to give step {step} up"):
                self._superseding.supersede(step, by)
            self._drained = True

    def remove(self, steps: Iterable[int]) -> None:
        """Has the committed checkpoints of these steps removed, in the background. Rank 0 alone calls it, from any thread. A removal that
        fails becomes a notice of ``poll``; ``drain`` waits for removals. Raises ``EngineError``."""
        with self.translated("older checkpoints to be removed"):
            self._backend.remove(steps)
        self._drained = True

    def give_up(self) -> WaitError:
        """The error to raise when the caller no longer repeats ``drain``. It names the rank that the last call waited for. Only after a
        ``drain`` that has returned False."""
        return self._faults.error(self._last_wait, "everything in flight to be committed")  # type: ignore[return-value]

    def _wait_in_slices(self, call: Callable[[float], None]) -> None:
        """Repeats ``call``, which waits for at most the given seconds, until it succeeds. Between two calls Python can handle Ctrl-C.
        Raises the fault of the last call when no bytes have moved for the time-out."""
        begin = time.monotonic()
        while True:
            try:
                return call(max(0.0, min(self._seconds_left(begin), _SLICE)))
            except EngineFault as fault:
                if fault.code != TIMEOUT or self.stalled(begin):
                    raise

    def stalled(self, begin: float) -> bool:
        """Whether the wait that began at ``begin`` (``time.monotonic()``, seconds) has ended, because no bytes have moved for the time-out.
        ``EngineError`` if the backend can't say."""
        with self.translated("whether bytes move"):
            return self._seconds_left(begin) <= 0

    def _seconds_left(self, begin: float) -> float:
        """Seconds for which a wait that began at ``begin`` may go on if no bytes move. Each movement of bytes starts the time-out anew."""
        waited = time.monotonic() - begin
        return self._timeout - (waited if waited < self._timeout else min(waited, self._backend.idle()))

    def progress(self) -> list[UnderWay]:
        """See ``Telling.progress``. ``[]`` if the backend does not tell."""
        if self._telling is None:
            return []
        with self.translated("how far its checkpoints are"):
            return self._telling.progress()

    def stats(self) -> dict[str, Any]:
        """See ``Telling.stats``. ``{}`` if the backend does not tell, or can't any more."""
        if self._telling is None:
            return {}
        with contextlib.suppress(EngineFault):
            return self._telling.stats()
        return {}

    def close(self) -> None:
        """Stops the backend and drops the owners of all memory. If the store hangs, the call gives up after half a
        minute, with a warning, and that memory stays until the process ends."""
        try:
            self._backend.close()
        except EngineFault as fault:
            # A thread of the backend may still read that memory, also while the interpreter ends and clears its modules. So the
            # reference is never given back.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._owners))
            self._notify("warning", f"{self._where}: {fault}")
        self._owners = {}


def _require(kind: BackendKind, opening: Opening) -> None:
    """``UnsupportedError`` for an opening that no backend of this kind can keep."""
    if opening.bounded and not kind.can.bounded:
        raise unsupported("storage=")
    if opening.one_memory and kind.can.capture_size is None:
        raise unsupported("memory=")


def unsupported(option: str) -> UnsupportedError:
    """The error for an option of ``Checkpoint`` that the chosen backend can't keep."""
    return UnsupportedError(
        where=option,
        expected="a backend that can keep to this bound",
        found="a backend that can't",
        todo=f"leave {option} out",
    )
