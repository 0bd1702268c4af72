"""Tells listeners of events.

The events that come with every checkpoint are made later than they happen: training puts down their values, which takes about a
microsecond, and another thread makes the events and tells the listeners. An event that a person may have to hear of is made at once.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from deepfreeze.events.event import Event, Notice
from deepfreeze.events.queue import Queue

# How many notes wait at most. More than a training takes while the thread that makes the events looks elsewhere.
_MOST_NOTES = 1000
# How many events of a start are kept at most, the newest ones. A start has a few for each damaged or unfinished checkpoint.
_MOST_HELD = 1000


class Listener(Protocol):
    """Is told of events. A user's listener (``listeners=``) has a thread of its own, which is not the training's, from the ``Attempt`` to
    the ``End`` of each training. So it may wait for a disk or a network, and hears of an event up to 0.2 seconds late. DeepFreeze's own
    listeners are called by the training thread, and take microseconds."""

    def on(self, event: Event) -> None:
        """Called once for each event, in the order in which they happened, and for one event at a time. An exception of a user's listener
        is one warning; the listener is told of later events all the same. There will be further classes of events, which a listener
        that does not know them lets pass."""


class _Function:
    """A function as a listener."""

    def __init__(self, function: Callable[[Event], Any]) -> None:
        self.on = function
        self.name = f"the listener {getattr(function, '__qualname__', repr(function))}"


def as_listener(given: Any) -> Listener | None:
    """``given`` itself if it has a method ``on``; a listener that calls it if it is a function of an event; None if it is neither, or is a
    class instead of an object."""
    if isinstance(given, type):
        return None
    if callable(getattr(given, "on", None)):
        return given
    return _Function(given) if callable(given) else None


class Events:
    """The listeners of one training. The training thread calls all methods; any thread may call ``flush``."""

    def __init__(self, at_once: Sequence[Listener] = (), threaded: Sequence[Listener] = ()) -> None:
        """``at_once``: listeners that ``emit`` calls itself, in this order. Training waits for them, so a call takes microseconds; an
        exception of theirs is one of the training. Another thread calls them for the events of ``note``; they are never told of two
        events at the same time. ``threaded``: listeners with a thread each, between ``start`` and ``stop``."""
        self._at_once = at_once
        self._notes: deque[tuple[float, Callable[..., Iterable[Event]], tuple]] = deque()
        self._lock = threading.RLock()  # of telling; a listener may cause another event
        self._threaded = [Queue(listener) for listener in threaded]
        self._queues: list[Queue] = []  # those with a thread now
        self._held: deque[Event] = deque(
            maxlen=_MOST_HELD
        )  # events since ``hold``, for the threads that ``start`` starts
        self._holding = False
        self._reported: set[str] = set()  # names of the listeners whose failure was reported

    def emit(self, event: Event) -> None:
        """Tells every listener of ``event``, after those that were noted before. Never waits for a listener with a thread of its own."""
        with self._lock:
            self.flush()
            self._tell(event)

    def notify(self, level: str, message: str) -> None:
        """Emits a message that the logger shows. A ``Notify`` (``deepfreeze.notices``), which training gives to the rooms below."""
        self.emit(Notice(message=message, level=level))

    def warn(self, message: str) -> None:
        """Emits a message that Python shows as a warning, with the line of the user's program."""
        self.emit(Notice(message=message, level="warning", warned=True))

    def note(self, make: Callable[..., Iterable[Event]], *values: Any) -> None:
        """Has the events ``make(t, m, *values)`` emitted soon, in their turn, with the present times ``t`` and ``m`` of ``Event``. For
        events that come with every checkpoint: the call takes about a microsecond."""
        self._notes.append((time.monotonic(), make, values))
        if len(self._notes) > _MOST_NOTES:
            self.flush()

    def flush(self) -> None:
        """Emits the events that were noted, in this call."""
        with self._lock:
            while self._notes:
                m, make, values = self._notes.popleft()
                t = time.time_ns() - int((time.monotonic() - m) * 1e9)
                for event in make(t, m, *values):
                    self._tell(event)

    def _tell(self, event: Event) -> None:
        if self._holding:
            self._held.append(event)
        for queue in self._queues:
            queue.put(event)
        for listener in self._at_once:
            listener.on(event)
        for queue in self._queues:
            if queue.failure is not None:
                self._report(queue)

    def hold(self) -> None:
        """An attempt begins. The start may emit events before the attempt has a file: they are kept, from now until ``start``, for the
        listeners with a thread. Those of an earlier start, which has failed, are forgotten."""
        with self._lock:
            self._held.clear()
            self._holding = True

    def start(self, journal: Queue, *first: Event) -> None:
        """Starts the threads of the ``threaded`` listeners, and of ``journal``. They are told of ``first``, of the events since ``hold``,
        and of every event from now on, until ``stop``. The listeners ``at_once`` have heard of the events since ``hold``, and are told of
        ``first`` now."""
        with self._lock:
            self._holding = False
            journal.before_look = self.flush
            for queue in [journal, *self._threaded]:
                queue.start()
                for event in (*first, *self._held):
                    queue.put(event)
                self._queues.append(queue)
            self._held.clear()
            for event in first:
                for listener in self._at_once:
                    listener.on(event)

    def stop(self, seconds: float) -> None:
        """Ends the threads of ``start`` when they have told of all events, or after ``seconds`` in all. Safe to call twice."""
        queues, self._queues = self._queues, []
        for queue in queues:
            queue.close()
        end = time.monotonic() + seconds
        late = [queue for queue in queues if not queue.join(max(0.0, end - time.monotonic()))]
        for queue in queues:
            if queue in late:
                queue.failure = queue.failure or TimeoutError(f"it has not heard of all events within {seconds:g} s")
            if queue.failure is not None:
                self._report(queue)

    def _report(self, queue: Queue) -> None:
        """Emits a warning of a listener's first failure."""
        error, queue.failure = queue.failure, None
        if queue.name not in self._reported:
            self._reported.add(queue.name)
            self.warn(f"{queue.name} has failed: {error!r}. Training and its checkpoints go on.")
