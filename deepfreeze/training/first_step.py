"""Notes when the first new step of a job is done: how long the job took to begin, which no checkpoint makes shorter."""

from __future__ import annotations

import os
import sys
import time

from deepfreeze.events.event import Started
from deepfreeze.events.events import Events
from deepfreeze.process_state import PROCESS


class FirstStep:
    """The first step of an attempt. Rank 0 has one for each attempt, and notes it in the first attempt of the process that has a step: the
    beginning of a process says nothing about a later ``fit``."""

    def __init__(self, events: Events, began: float) -> None:
        """``began``: the beginning of the attempt, in seconds of ``time.monotonic()``."""
        self._notes = events.notes
        age = process_age()
        self._since, self._began = ("attempt", began) if age is None else ("process", time.monotonic() - age)

    def done(self, step: int) -> None:
        """Notes that ``step`` is done, unless the process has noted a step before. The training thread calls it."""
        if PROCESS.first_step == os.getpid():
            return
        PROCESS.first_step, now = os.getpid(), time.monotonic()
        self._notes.append((now, Started.noted, (step, now - self._began, self._since)))


def process_age() -> float | None:
    """Seconds since this process began, to a hundredth (proc(5), ``/proc/self/stat``); None if the system does not tell, or for an
    interactive session: it may have been open for hours before its first training."""
    if hasattr(sys, "ps1"):
        return None
    try:
        with open("/proc/self/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()  # behind the program's name, which may have anything in it
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return None
    return age if age >= 0 else None
