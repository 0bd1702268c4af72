"""Tells listeners of events: some at once, on the thread on which the event happened, others on threads of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from deepfreeze.events.event import Event, Notice
from deepfreeze.events.queue import Queue


class Listener(Protocol):
    """Is told of events."""

    def on(self, event: Event) -> None:
        """Called once for each event, in the order in which they happened. Which thread calls it is said where the listener is added."""


class _Function:
    """A function as a listener."""

    def __init__(self, function: Callable[[Event], Any]) -> None:
        self.on = function
        self.name = getattr(function, "__qualname__", repr(function))


def as_listener(given: Any) -> Listener | None:
    """``given`` itself if it has a method ``on``; a listener that calls it if it is a function of an event; None if it is neither."""
    if callable(getattr(given, "on", None)):
        return given
    return _Function(given) if callable(given) else None


class Events:
    """The listeners of one training. The training thread calls all methods."""

    def __init__(self, *at_once: Listener) -> None:
        """``at_once``: listeners that ``emit`` calls itself, in this order. Training waits for them, so a call takes microseconds; an
        exception of theirs is one of the training."""
        self._at_once = at_once
        self._queues: list[Queue] = []

    def emit(self, event: Event) -> None:
        """Tells every listener of ``event``. Never waits for a listener with a thread of its own."""
        for listener in self._at_once:
            listener.on(event)
        for queue in self._queues:
            queue.put(event)
            if queue.failure is not None:
                self._report(queue)

    def start(self, listeners: Sequence[Listener]) -> None:
        """Starts a thread for each of the ``listeners``, which it tells of every event from now on, until ``stop``."""
        self._queues += [Queue(listener) for listener in listeners]

    def stop(self, seconds: float) -> None:
        """Ends the threads of ``start`` when they have told of all events, or after ``seconds``. Safe to call twice."""
        queues, self._queues = self._queues, []
        for queue in queues:
            queue.close(seconds)
            if queue.failure is not None:
                self._report(queue)

    def _report(self, queue: Queue) -> None:
        """Emits a warning of the first failure of a queue's listener."""
        error, queue.failure = queue.failure, None
        if not queue.reported:
            queue.reported = True
            self.emit(Notice(message=f"the listener {queue.name} has failed: {error!r}", level="warning"))
