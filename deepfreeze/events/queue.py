"""Calls one listener on a thread of its own."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

from deepfreeze.events.event import Event, Notice

CAPACITY = 10_000  # events that wait; a listener that hangs must not take all memory
# How long, in seconds, an event may wait before the thread looks. Waking the thread for each event would take time from training.
_LOOKS_EVERY = 0.2


class Queue:
    """Events that wait for one listener, and the thread that calls it. The training thread calls ``put`` and ``close``.

    ``name``: of the listener, for messages. ``failure``: an exception of the listener that was not reported yet; it is told of the next
    events all the same. ``reported``: whether one was reported."""

    def __init__(self, listener: Any) -> None:
        """``listener``: has a method ``on(event)``, and may have a method ``close()``, which the thread calls at the end."""
        self.name: str = getattr(listener, "name", type(listener).__name__)
        self.failure: Exception | None = None
        self.reported = False
        self._listener = listener
        self._waiting: deque[Event] = deque()
        self._dropped = 0
        self._closing = threading.Event()
        # A daemon: a listener that hangs must not keep the process from ending.
        self._thread = threading.Thread(target=self._run, name="deepfreeze-events", daemon=True)
        self._thread.start()

    def put(self, event: Event) -> None:
        """Adds an event. Takes about a microsecond, and never waits. With ``CAPACITY`` events waiting, the event is dropped and counted."""
        if len(self._waiting) >= CAPACITY:
            self._dropped += 1
        else:
            self._waiting.append(event)

    def close(self, seconds: float) -> None:
        """Ends the thread when it has told of all events; waits for at most ``seconds``."""
        self._closing.set()
        self._thread.join(seconds)

    def _run(self) -> None:
        ending, told = False, 0  # told: how many of the dropped events the listener was told of
        while not ending:
            ending = self._closing.wait(
                _LOOKS_EVERY
            )  # read before the queue is emptied, so that no event is left in it
            while self._waiting:
                self._call(self._listener.on, self._waiting.popleft())
            if (dropped := self._dropped - told) > 0:
                told += dropped
                self._call(self._listener.on, Notice(message=f"{dropped} events were dropped here", level="info"))
        self._call(getattr(self._listener, "close", lambda: None))

    def _call(self, function: Any, *arguments: Any) -> None:
        try:
            function(*arguments)
        except Exception as error:  # of the user's code: it must end neither this thread nor the training
            self.failure = self.failure or error
