"""Tells listeners of events.

The events that come with every checkpoint are made later than they happen: training puts down a note of their values, and another thread
makes the events and tells the listeners. An event that a person may have to hear of is made at once.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from deepfreeze.events.event import Event, Notice
from deepfreeze.events.queue import CAPACITY, Queue
from deepfreeze.events.watch import Watch

#: When more notes wait, the training thread itself makes the events: the thread that should is held up by a store.
MOST_NOTES = 1000
#: The present time (``time.monotonic()``), a function, and its arguments behind the two times ``t`` and ``m`` of ``Event``. The function
#: returns the events.
Note = tuple[float, Callable[..., Iterable[Event]], tuple[Any, ...]]


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
    """The listeners of one training. The training thread calls all methods; any thread may call ``flush``.

    ``watch``: tells how far checkpoints are, on the thread of the file of events.

    ``notes``: what has happened and no event was made of. The training thread appends a note for each event that comes with every
    checkpoint, and nothing else: a call of a method would take it several times as long. It calls ``flush`` if there are more than
    ``MOST_NOTES``."""

    def __init__(self, at_once: Sequence[Listener] = (), threaded: Sequence[Listener] = ()) -> None:
        """``at_once``: listeners that ``emit`` calls itself, in this order. Training waits for them, so a call takes microseconds; an
        exception of theirs is one of the training. Another thread calls them for the events of ``notes``; they are never told of two
        events at the same time. ``threaded``: listeners with a thread each, between ``start`` and ``stop``."""
        self._at_once = at_once
        self.notes: deque[Note] = deque()
        self.watch = Watch(self.emit)
        self._lock = threading.RLock()  # of telling; a listener may cause another event
        self._threaded = [Queue(listener) for listener in threaded]
        self._queues: list[Queue] = []  # those with a thread now
        # The events since ``hold``, for the threads that ``start`` starts. They may not wait for a listener in greater numbers anyway.
        self._held: deque[Event] = deque(maxlen=CAPACITY)
        self._holding = False
        self._starter = 0  # the training thread, which reports the failures of listeners
        self._told_once: set[str] = set()  # causes of warnings
        self._reported: set[str] = set()  # names of the listeners whose failure was reported

    def emit(self, event: Event) -> None:
        """Tells every listener of ``event``, after those that were noted before. Never waits for a listener with a thread of its own."""
        with self._lock:
            self.flush()
            self._tell(event)

    def notify(self, level: str, message: str) -> None:
        """Emits a message that the logger shows. A ``Notify`` (``deepfreeze.notices``), which training gives to the rooms below."""
        self.emit(Notice(message=message, level=level))

    def warn(self, message: str, once: str = "") -> None:
        """Emits a message that Python shows as a warning, with the line of the user's program. ``once``: the cause, of which the user
        hears no second time; "" if each message counts."""
        if once in self._told_once:
            return
        if once:
            self._told_once.add(once)
        self.emit(Notice(message=message, level="warning", warned=True))

    def say(self, message: str) -> None:
        """Emits a line for standard error. The caller has been asked for it by ``verbose=1``."""
        self.emit(Notice(message=message, level="info", said=True))

    def tell(self, message: str, said: bool) -> None:
        """Emits a message: a line for standard error if ``said``, the caller has been asked for it, or else one that the logger shows."""
        if said:
            self.say(message)
        else:
            self.notify("info", message)

    def flush(self) -> None:
        """Emits the events that were noted, in this call."""
        with self._lock:
            while self.notes:
                m, make, values = self.notes.popleft()
                t = time.time_ns() - int((time.monotonic() - m) * 1e9)
                for event in make(t, m, *values):
                    self._tell(event)

    def _before_look(self) -> None:
        self.flush()
        self.watch.look()

    def _tell(self, event: Event) -> None:
        if self._holding:
            self._held.append(event)
        for queue in self._queues:
            queue.put(event)
        for listener in self._at_once:
            listener.on(event)
        if threading.get_ident() != self._starter:
            return  # Python hides a warning of this thread while the training thread silences a library's warnings
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
            self._holding, self._starter = False, threading.get_ident()
            journal.before_look = self._before_look
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
