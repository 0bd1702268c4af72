"""Events that are put down and made later: nothing is lost, nothing changes places, and whoever asks sees all of it."""

import threading
import time

from deepfreeze.events.event import Captured, Notice
from deepfreeze.events.events import Events
from deepfreeze.events.queue import Queue


class Ear:
    def __init__(self):
        self.heard, self.threads = [], set()

    def on(self, event):
        self.heard.append(event)
        self.threads.add(threading.current_thread())


def captured(t, m, *steps):
    return [Captured(t=t, m=m, step=step, nbytes=1) for step in steps]


def put_down(events, *steps):
    events.notes.append((time.monotonic(), captured, steps))


def notice(text):
    return Notice(message=text, level="info")


def test_what_is_put_down_is_told_with_its_own_time_when_somebody_asks():
    ear = Ear()
    events = Events([ear])
    before = (time.time_ns(), time.monotonic())
    put_down(events, 1, 2)
    after = (time.time_ns(), time.monotonic())
    assert ear.heard == []
    time.sleep(0.05)
    events.flush()
    events.flush()
    assert [event.step for event in ear.heard] == [1, 2]
    assert all(before[1] <= event.m <= after[1] for event in ear.heard)
    assert all(abs(event.t - before[0]) < 30e6 for event in ear.heard), "not the time of the flush, 50 ms later"


def test_an_event_that_is_told_at_once_comes_after_what_was_put_down():
    ear = Ear()
    events = Events([ear])
    put_down(events, 1)
    events.emit(notice("now"))
    put_down(events, 2)
    events.emit(notice("again"))
    assert [getattr(event, "message", event.step) for event in ear.heard] == [1, "now", 2, "again"]


def test_the_files_thread_tells_all_listeners_of_what_was_put_down():
    at_once, kept = Ear(), Ear()
    events = Events([at_once])
    events.start(Queue(kept))
    for step in range(3000):
        put_down(events, step)
    deadline = time.monotonic() + 60
    while len(kept.heard) < 3000 and time.monotonic() < deadline:
        time.sleep(0.01)
    events.stop(60)
    assert [event.step for event in at_once.heard] == [event.step for event in kept.heard] == list(range(3000))
    assert threading.main_thread() not in kept.threads


def test_what_a_start_says_is_heard_at_once_and_follows_the_attempt():
    at_once, own, kept = Ear(), Ear(), Ear()
    events = Events([at_once], [own])
    events.hold()
    events.notify("info", "of a start that failed")
    events.hold()
    events.notify("warning", "step 6 is damaged")
    events.warn("mine")
    assert [(one.level, one.warned) for one in at_once.heard] == [
        ("info", False),
        ("warning", False),
        ("warning", True),
    ]
    events.start(Queue(kept), notice("begun"))
    events.notify("info", "later")
    events.stop(60)
    assert [one.message for one in at_once.heard][3:] == ["begun", "later"]
    assert [one.message for one in kept.heard] == ["begun", "step 6 is damaged", "mine", "later"]
    assert own.heard == kept.heard
    events.start(Queue(Ear()), notice("begun again"))
    events.stop(60)
    assert [one.message for one in own.heard][4:] == ["begun again"], "an event is held for one attempt"


def test_a_start_that_says_very_much_takes_bounded_memory(monkeypatch):
    monkeypatch.setattr("deepfreeze.events.events.CAPACITY", 100)
    kept, events = Ear(), Events()
    events.hold()
    for step in range(150):
        events.notify("info", str(step))
    events.start(Queue(kept))
    events.stop(60)
    assert [one.message for one in kept.heard] == [str(step) for step in range(50, 150)], "the newest"


def test_a_listener_that_causes_an_event_while_it_is_told_does_not_hang():
    heard = []

    class Answering:
        def on(self, event):
            heard.append(event)
            if isinstance(event, Captured):
                events.emit(notice(f"{event.step}"))

    events = Events([Answering()])
    put_down(events, 1, 2)
    events.flush()
    assert [type(event).__name__ for event in heard] == ["Captured", "Notice", "Captured", "Notice"]


def test_a_listeners_failure_is_told_by_the_training_thread_alone():
    """Python shows a warning with a line of the user's program, and hides another thread's while this one silences a library's."""

    class Fails:
        def on(self, event):
            raise RuntimeError("no dashboard")

    ear = Ear()
    events = Events([ear], [Fails()])
    events.start(Queue(Ear()), notice("begun"))
    (failing,) = events._threaded
    deadline = time.monotonic() + 60
    while failing.failure is None and time.monotonic() < deadline:
        time.sleep(0.01)
    other = threading.Thread(target=events.emit, args=[notice("of another thread")])
    other.start()
    other.join()
    assert [event.message for event in ear.heard] == ["begun", "of another thread"]
    events.emit(notice("of this one"))
    assert [event.message for event in ear.heard if event.warned] == [
        "the listener Fails has failed: RuntimeError('no dashboard'). Training and its checkpoints go on."
    ]
    events.stop(60)
