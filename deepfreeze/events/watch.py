"""Tells, while checkpoints are on their way, how far they are."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from deepfreeze.events.event import Event, Progress, Unfinished

_SECONDS = 1.0  # between two looks, and how old a checkpoint is that is worth telling of


class Watch:
    """Looks at the unfinished checkpoints of one training, from ``open`` to ``close``. A thread of the events calls ``look``; the training
    thread, which may wait for a store that hangs, calls the other methods."""

    def __init__(self, emit: Callable[[Event], None]) -> None:
        self._emit = emit
        self._lock = threading.Lock()  # of a look, so that none is under way when ``close`` returns
        self._unfinished: Callable[[], Sequence[Unfinished]] | None = None
        self._next, self._told = 0.0, False

    def open(self, unfinished: Callable[[], Sequence[Unfinished]]) -> None:
        """Checkpoints will come. ``unfinished``: says how far they are, the oldest first, and never waits."""
        with self._lock:
            self._unfinished, self._told = unfinished, False

    def close(self) -> None:
        """From now on nothing is looked at. Safe to call twice."""
        with self._lock:
            self._unfinished = None

    def look(self) -> None:
        """To be called several times a second: emits ``Progress`` if it is time and there is something to tell."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + _SECONDS
        with self._lock:
            found = tuple(self._unfinished()) if self._unfinished is not None else ()
        if not any(one.seconds >= _SECONDS for one in found):
            if not self._told:
                return
            found = ()
        self._told = bool(found)
        self._emit(Progress(unfinished=found))
