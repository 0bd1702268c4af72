"""Calls one listener on a thread of its own. It is told of events; the keeper of ``plan.json`` uses it for what is to be written."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from deepfreeze.events.event import Notice

CAPACITY = 10_000  # events that wait; a listener that hangs must not take all memory
# How long, in seconds, an event may wait before the thread looks. Waking the thread for each event would take time from training.
_LOOKS_EVERY = 0.2


class Queue:
    """Events that wait for one listener, and the thread that calls it. The training thread calls all methods but ``put``, which one thread
    at a time calls.

    ``before_look``: called by the thread each time before it looks. ``name``: of the listener, for messages. ``failure``: an exception of
    the listener that was not reported yet. After an exception the listener is told of the next events all the same."""

    def __init__(self, listener: Any, at_end: Callable[[], None] = lambda: None) -> None:
        """``listener``: has a method ``on(event)``; ``at_end``: what the thread calls last."""
        self.name: str = getattr(listener, "name", f"the listener {type(listener).__name__}")
        self.failure: Exception | None = None
        self.before_look: Callable[[], None] = lambda: None
        self._listener, self._at_end = listener, at_end
        self._waiting: deque[Any] = deque()
        self._dropped = 0
        self._told = 0  # how many of the dropped events the listener was told of
        self._closing = threading.Event()
        self._lock = threading.Lock()  # of the thread's beginning and end
        self._running = False  # a thread is there, and will look at the queue again
        self._thread: threading.Thread | None = None  # the last one

    def start(self) -> None:
        """Starts the thread. If the thread of an earlier start still calls the listener, that thread goes on instead, so that the listener
        never hears of two events at once. A thread that can't be started is a failure of the listener."""
        with self._lock:
            self._closing.clear()
            if not self._running:
                # A daemon: a listener that hangs must not keep the process from ending.
                thread = threading.Thread(target=self._run, name="deepfreeze-events", daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:  # no room for another thread
                    self.failure = self.failure or error
                else:
                    self._thread, self._running = thread, True

    def put(self, event: Any) -> None:
        """Adds an event. Takes about a microsecond, and never waits. With ``CAPACITY`` events waiting, the event is dropped and counted."""
        if len(self._waiting) >= CAPACITY:
            self._dropped += 1
        else:
            self._waiting.append(event)

    def close(self) -> None:
        """Has the thread end when it has told of all events."""
        self._closing.set()

    def join(self, seconds: float) -> bool:
        """Waits for the end of the thread, for at most ``seconds``. Returns whether it has ended."""
        thread = self._thread
        if thread is None:
            return True
        if thread is threading.current_thread():
            return False  # Python frees a forgotten training on any thread
        thread.join(seconds)
        return not thread.is_alive()

    def _run(self) -> None:
        while True:
            self._closing.wait(_LOOKS_EVERY)
            self._call(self.before_look)
            while self._waiting:
                self._call(self._listener.on, self._waiting.popleft())
            if (dropped := self._dropped - self._told) > 0:
                self._told += dropped
                message = f"{dropped} events before this one were dropped, because the listener was too slow"
                self._call(self._listener.on, Notice(message=message, level="info"))
            with self._lock:
                if self._closing.is_set() and not self._waiting:
                    self._call(self._at_end)
                    self._running = False
                    return

    def _call(self, function: Any, *arguments: Any) -> None:
        try:
            function(*arguments)
        except Exception as error:  # of the user's code: it must end neither this thread nor the training
            self.failure = self.failure or error
