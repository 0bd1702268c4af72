"""Listeners with a thread of their own: each is told of every event in order, and none can hold up or end a training."""

import threading

import pytest

from deepfreeze.events import queue
from deepfreeze.events.event import Captured, Event, Notice, Stop
from deepfreeze.events.events import Events, as_listener


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


def test_every_event_comes_once_and_in_order_on_a_thread_of_its_own():
    now, later, all_events = Kept(), Kept(), captured(1000)
    events = Events(now)
    events.start([later])
    for event in all_events:
        events.emit(event)
    assert now.events == all_events and now.threads == {threading.current_thread().name}
    events.stop(60)
    events.stop(60)
    assert later.events == all_events and later.threads == {"deepfreeze-events"} and later.closed == 1
    events.emit(Stop(step=1, signal="SIGTERM"))
    assert len(later.events) == 1000, "nobody tells it after stop"


def test_a_failing_listener_is_one_warning_and_is_told_of_the_rest():
    told, seen = Kept(), []

    def fails(event):
        seen.append(event)
        raise ValueError(f"step {event.step}")

    events = Events(told)
    events.start([as_listener(fails)])
    for event in captured(3):
        events.emit(event)
    events.stop(60)
    notices = [event for event in told.events if isinstance(event, Notice)]
    assert [notice.level for notice in notices] == ["warning"]
    assert "fails has failed: ValueError('step 0')" in notices[0].message
    assert [event.step for event in seen] == [0, 1, 2]


def test_a_listener_that_hangs_holds_nobody_up_and_takes_bounded_memory(monkeypatch):
    monkeypatch.setattr(queue, "CAPACITY", 10)
    hang, begun, told = threading.Event(), threading.Event(), []

    def hangs(event):
        begun.set()
        hang.wait(60)
        told.append(event)

    events = Events()
    events.start([as_listener(hangs)])
    events.emit(Captured(step=0, nbytes=1))
    assert begun.wait(60)
    for event in captured(100):
        events.emit(event)
    events.stop(0.01)  # it still hangs
    hang.set()
    until_told = threading.Event()
    for _ in range(600):
        if len(told) == 12:
            break
        until_told.wait(0.1)
    assert [event.step for event in told[:11]] == [0, *range(10)]
    assert told[11].message == "90 events were dropped here"


def test_a_function_or_an_object_is_a_listener_and_nothing_else():
    kept = Kept()
    assert as_listener(kept) is kept and as_listener(print).name == "print"
    assert as_listener(5) is as_listener("on") is None


@pytest.mark.parametrize("kind", Event.__subclasses__(), ids=lambda kind: kind.__name__)
def test_an_event_can_not_be_changed_and_needs_names(kind):
    with pytest.raises(TypeError):
        kind(1)
    with pytest.raises(AttributeError):
        Captured(step=1, nbytes=2).step = 3
