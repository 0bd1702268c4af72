"""Listeners with a thread of their own: each is told of every event in order, and none can hold up or end a training."""

import threading
import time

import pytest

from deepfreeze.events import queue
from deepfreeze.events.event import Captured, Event, Notice, Stop
from deepfreeze.events.events import Events, as_listener
from deepfreeze.events.queue import Queue
from tests.support.ranks import until


class Kept:
    """Keeps what it is told, and on which threads."""

    def __init__(self):
        self.events, self.threads, self.closed = [], set(), 0

    def on(self, event):
        self.events.append(event)
        self.threads.add(threading.current_thread().name)

    def close(self):
        self.closed += 1


def captured(count):
    return [Captured(step=step, nbytes=1) for step in range(count)]


def journal():
    """A listener beside the tested ones, as each attempt has one."""
    kept = Kept()
    return Queue(kept, at_end=kept.close), kept


def test_every_event_comes_once_and_in_order_on_a_thread_of_its_own():
    now, later, all_events = Kept(), Kept(), captured(1000)
    events = Events([now], [later])
    beside, kept = journal()
    events.start(beside)
    for event in all_events:
        events.emit(event)
    assert now.events == all_events and now.threads == {threading.current_thread().name}
    events.stop(60)
    events.stop(60)
    assert later.events == kept.events == all_events and later.threads == {"deepfreeze-events"}
    assert (later.closed, kept.closed) == (0, 1), "a listener of the user is not closed"
    events.emit(Stop(step=1, signal="SIGTERM"))
    assert len(later.events) == 1000, "nobody tells it after stop"


def test_a_listener_hears_of_the_next_attempt_too():
    later = Kept()
    events = Events([], [later])
    for step in range(3):
        events.start(journal()[0])
        events.emit(Captured(step=step, nbytes=1))
        events.stop(60)
    assert [event.step for event in later.events] == [0, 1, 2]
    assert not [thread for thread in threading.enumerate() if thread.name == "deepfreeze-events"]


def test_a_failing_listener_is_one_warning_and_is_told_of_the_rest():
    told, seen = Kept(), []

    def fails(event):
        seen.append(event)
        raise ValueError(f"step {event.step}")

    events = Events([told], [as_listener(fails)])
    events.start(journal()[0])
    for event in captured(3):
        events.emit(event)
    events.stop(60)
    notices = [event for event in told.events if isinstance(event, Notice)]
    assert [notice.level for notice in notices] == ["warning"]
    assert "fails has failed: ValueError('step 0'). Training and its checkpoints go on." in notices[0].message
    assert [event.step for event in seen if isinstance(event, Captured)] == [0, 1, 2]


def test_an_event_reaches_threads_also_if_a_listener_raises_at_once():
    class Raises:
        def on(self, event):
            raise RuntimeError("a warning that is an error")

    later = Kept()
    events = Events([Raises()], [later])
    events.start(journal()[0])
    with pytest.raises(RuntimeError):
        events.emit(captured(1)[0])
    events.stop(60)
    assert [event.step for event in later.events] == [0]


def test_a_listener_that_hangs_holds_nobody_up_and_takes_bounded_memory(monkeypatch):
    """The listener still hangs when the next attempt begins: its first thread goes on, so it hears of one event at a time."""
    monkeypatch.setattr(queue, "CAPACITY", 10)
    hang, begun, told, at_once = threading.Event(), threading.Event(), [], Kept()

    def hangs(event):
        begun.set()
        hang.wait(60)
        told.append((event, threading.current_thread()))

    events = Events([at_once], [as_listener(hangs)])
    events.start(journal()[0])
    events.emit(Captured(step=0, nbytes=1))
    assert begun.wait(60)
    for event in captured(100):
        events.emit(event)
    began = time.monotonic()
    events.stop(0.05)
    assert time.monotonic() - began < 30
    assert [event.message for event in at_once.events if isinstance(event, Notice)] != []
    events.start(journal()[0])
    hang.set()
    until(lambda: len(told) >= 12)
    events.emit(Captured(step=7, nbytes=1))
    events.stop(60)
    assert [event.step for event, _ in told if isinstance(event, Captured)] == [0, *range(10), 7]
    assert [event.message for event, _ in told if isinstance(event, Notice)] == [
        "90 events before this one were dropped, because the listener was too slow"
    ]
    assert len({thread for _, thread in told}) == 1


def test_a_thread_that_can_not_be_started_is_one_warning(monkeypatch):
    def no_more(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", no_more)
    told = Kept()
    events = Events([told], [Kept()])
    events.start(journal()[0])
    events.emit(captured(1)[0])
    events.stop(60)
    assert [type(event) for event in told.events] == [Captured, Notice]


def test_a_function_or_an_object_is_a_listener_and_nothing_else():
    kept = Kept()
    assert as_listener(kept) is kept and as_listener(print).name == "the listener print"
    assert as_listener(5) is as_listener("on") is as_listener(Kept) is None


@pytest.mark.parametrize("kind", Event.__subclasses__(), ids=lambda kind: kind.__name__)
def test_an_event_can_not_be_changed_and_needs_names(kind):
    with pytest.raises(TypeError):
        kind(1)
    with pytest.raises(AttributeError):
        Captured(step=1, nbytes=2).step = 3
