"""Turns faults of the engine and of other backends into errors that name the run and say what to do."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from deepfreeze.engine import records
from deepfreeze.errors import END_THIS_JOB, EngineError, WaitError
from veloc_bindings import EngineFault, LibraryError

__all__ = ["EngineFault", "Faults", "LibraryError"]


class Faults:
    """The errors of one training. All of a training's calls that a backend, or a capture area, may answer with an ``EngineFault`` are made
    inside ``translated``: those of ``OpenEngine``, those of the saver that take captures and place them, and the making of captures.

    Rooms that call without an open engine handle the faults of these calls themselves. ``store/posix_store`` and ``tiers/rescue`` make
    errors of them. ``tiers/leftovers`` passes by a slot that it can't read. ``frameworks/tensorflow/engine_buffers`` goes on where the op
    can't be registered, or where there is no capture to give back."""

    def __init__(self, run: str, timeout: float) -> None:
        """``run``: the path that errors name; ``timeout``: for how many seconds a wait may go on in which no bytes move."""
        self._where, self._timeout = run, timeout

    @contextlib.contextmanager
    def translated(self, expected: str) -> Iterator[None]:
        """Turns an ``EngineFault`` of the calls inside into an ``EngineError``, or into a ``WaitError`` if a wait has ended. ``expected``:
        the part of the message after "expected", "memory for the next capture" for example."""
        try:
            yield
        except EngineFault as fault:
            raise self.error(fault, expected) from fault

    def error(self, fault: EngineFault, expected: str) -> EngineError:
        """The error to raise for ``fault``. ``expected``: as for ``translated``."""
        todo = _ADVICE.get(fault.code, _OTHERWISE)
        found = str(fault).removesuffix(".")  # the error's message ends this part itself
        if fault.code == records.TIMEOUT:
            expected = f"{expected}, or bytes that move, within {self._timeout:g} s"
            return WaitError(where=self._where, expected=expected, found=found, todo=todo)
        return EngineError(where=self._where, expected=expected, found=found, todo=todo)


_OTHERWISE = "report it, with this message: older checkpoints are untouched, and the job can be started again"
_ADVICE = {
    records.TIMEOUT: "check that rank and its storage, or allow more time with timeout=",
    records.NO_SPACE: "free space there, or lower keep=",
    records.IO: "check the file system that the message names",
    records.INVALID: "check the options that the message names, and that nothing else writes into the run",
    records.CORRUPT: "check the disk with deepfreeze verify: a file is not as it was written",
    records.INCOMPLETE: "mend what that rank reports; older checkpoints are untouched",
    records.TAKEN: END_THIS_JOB,
    records.CLOSED: "open the run again: it was closed, or this process was forked from the one that opened it",
}
