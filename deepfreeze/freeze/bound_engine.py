"""Hands captured shards to the native engine, zero-copy, and keeps them alive until it lets go.

The engine reads TensorFlow's buffers where they lie. Python only holds the references: a step's tensors are dropped when the
engine reports the step as released. Imports no TensorFlow: anything with a buffer at an address can be handed over.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import veloc_bindings
from deepfreeze.errors import EngineError, WaitError
from deepfreeze.store.run import END_THIS_JOB
from veloc_bindings import Area, EngineFault, LibraryError, Report

log = logging.getLogger("deepfreeze")

# Seconds that a call into the engine waits at a stretch.
_SLICE = 1.0


class BoundEngine:
    """One rank's engine and the captured tensors it still reads."""

    def __init__(self, where: str, timeout: float, **options: Any) -> None:
        self._where = where
        self._timeout = timeout
        self._held: dict[int, Any] = {}
        self._unfinished: set[int] = set()
        with self.translated("an engine"):
            self._engine = veloc_bindings.Engine(**options)

    @contextlib.contextmanager
    def translated(self, expected: str) -> Iterator[None]:
        """The one boundary at which an engine's fault becomes an ``EngineError`` or, if a wait has ended, a ``WaitError``.
        ``expected``: what the calls inside were to bring about."""
        try:
            yield
        except EngineFault as fault:
            raise self.error(fault, expected) from fault

    @property
    def unfinished(self) -> list[int]:
        """Steps handed over that are neither committed nor failed, as of the last ``poll``."""
        return sorted(self._unfinished)

    def submit(self, step: int, regions: np.ndarray, private: bytes, hold: Any) -> None:
        """Hands over one step; ``hold`` is, or contains, every object whose memory ``regions`` point to.

        Waits while as many checkpoints are in memory as may be. Raises ``WaitError`` when nothing has moved for the time-out.
        """
        self._held[step] = hold
        try:
            with self.translated(f"to take step {step}"):
                self._patiently(lambda seconds: self._engine.submit(step, regions, private, seconds))
        except EngineError:
            del self._held[step]
            raise
        self._unfinished.add(step)

    def plan(self, regions: np.ndarray, private_nbytes: int, side_nbytes: int) -> list[int]:
        """Fixes the regions (rows as of ``Regions.rows``, addresses 0) of captures into the engine's memory; returns their
        places in it, and at the end where the side bytes begin."""
        with self.translated("a plan of the engine's memory"):
            return self._engine.plan(regions, private_nbytes, side_nbytes)

    def attach(self, area: Area) -> None:
        """From its next capture on, the area's memory is the engine's."""
        with self.translated("captures into the engine's memory"):
            self._engine.attach(area, self._timeout)

    def room(self) -> int:
        """How many more captures there would be memory for now; what is reserved is not counted."""
        with self.translated("how much memory is free"):
            return self._engine.room()

    def reserve(self) -> None:
        """Waits until there is memory for the next capture. Raises ``WaitError`` or ``EngineError``."""
        with self.translated("memory for the next capture"):
            self._patiently(self._engine.reserve)

    def wait(self, step: int, level: int) -> None:
        """Blocks until the step has reached the level. Raises ``WaitError`` or ``EngineError``."""
        with self.translated(f"step {step} to be protected"):
            self._patiently(lambda seconds: self._engine.wait(step, level, seconds))

    def poll(self) -> list[Report]:
        """What changed since the last poll; drops the tensors the engine has let go of. Never blocks."""
        with self.translated("reports of what is in flight"):
            reports = self._engine.poll() if self._unfinished or self._held else []
        for report in reports:
            if report.released:
                self._held.pop(report.step, None)
            if report.code != veloc_bindings.OK or report.level == veloc_bindings.EXTERNAL:
                self._unfinished.discard(report.step)
        return reports

    def drain(self, seconds: float) -> bool:
        """Waits until everything handed over is committed or failed. False if it is not after ``seconds``."""
        try:
            self._engine.drain(seconds)
        except EngineFault as fault:
            if fault.code == veloc_bindings.TIMEOUT:
                self._last_wait = fault
                return False
            raise self.error(fault, "everything in flight to be committed") from fault
        return True

    def give_up(self) -> WaitError:
        """The error to raise when ``drain`` has returned False for the last time; it names who is missing."""
        return self.error(self._last_wait, "everything in flight to be committed")  # type: ignore[return-value]

    def _patiently(self, call: Callable[[float], None]) -> None:
        """Makes a call that waits, in slices, so that an interrupt from the keyboard is heard between them, and for as long as
        bytes move."""
        begin = time.monotonic()
        while True:
            try:
                return call(max(0.0, min(self._left(begin), _SLICE)))
            except EngineFault as fault:
                if fault.code != veloc_bindings.TIMEOUT or self.stalled(begin):
                    raise

    def stalled(self, begin: float) -> bool:
        """Whether a wait has ended: it began at ``begin`` (``time.monotonic()``, seconds), and no bytes have moved for the time-out."""
        return self._left(begin) <= 0

    def _left(self, begin: float) -> float:
        """Seconds of a wait: the bound begins anew whenever bytes move."""
        waited = time.monotonic() - begin
        return self._timeout - (waited if waited < self._timeout else min(waited, self._engine.idle()))

    def error(self, fault: EngineFault, expected: str) -> EngineError:
        """The error to raise for a call that failed."""
        todo = _ADVICE.get(fault.code, _OTHERWISE)
        if fault.code == veloc_bindings.TIMEOUT:
            expected = f"{expected}, or bytes that move, within {self._timeout:g} s"
            return WaitError(where=self._where, expected=expected, found=str(fault), todo=todo)
        return EngineError(where=self._where, expected=expected, found=str(fault), todo=todo)

    def close(self) -> None:
        """Stops the engine and drops every tensor; where the store hangs, in bounded time and with a warning."""
        try:
            self._engine.close()
        except EngineFault as fault:
            log.warning("%s: %s", self._where, fault)
            # The engine's threads may yet read it, also while the process ends and modules lose what they refer to.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._held))
        self._held = {}


def load() -> None:
    """Loads the native engine. Raises ``EngineError`` if it is missing or of another version."""
    try:
        veloc_bindings.version()
    except LibraryError as error:
        raise EngineError(where=error.where, expected=error.expected, found=error.found, todo=error.todo) from error


_OTHERWISE = "report it, with this message: older checkpoints are untouched, and the job can be started again"
_ADVICE = {
    veloc_bindings.TIMEOUT: "check that rank and its storage, or allow more time with timeout=",
    veloc_bindings.NO_SPACE: "free space there, or lower keep=",
    veloc_bindings.IO: "check the file system that the message names",
    veloc_bindings.INVALID: "check the options that the message names, and that nothing else writes into the run",
    veloc_bindings.CORRUPT: "check the disk with deepfreeze verify: a file is not as it was written",
    veloc_bindings.INCOMPLETE: "mend what that rank reports; older checkpoints are untouched",
    veloc_bindings.TAKEN: END_THIS_JOB,
    veloc_bindings.CLOSED: "open the run again: it was closed, or this process was forked from the one that opened it",
}
