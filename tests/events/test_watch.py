"""While checkpoints are on their way, an event a second says how far they are."""

import threading

import pytest

from deepfreeze.events import External, Failed, Progress, Unfinished
from deepfreeze.events import watch as watches
from deepfreeze.events.stats import Stats


def one(step, seconds):
    return Unfinished(step, "local", 100, 100, 40, False, seconds, "")


@pytest.fixture
def watched(monkeypatch):
    """A watch, what it has told, and its clock."""
    told, clock = [], [100.0]
    monkeypatch.setattr(watches.time, "monotonic", lambda: clock[0])
    return watches.Watch(told.append), told, clock


def look(watch, clock, seconds):
    clock[0] += seconds
    watch.look()


def test_a_checkpoint_on_its_way_is_told_of_once_a_second(watched):
    watch, told, clock = watched
    found = []
    look(watch, clock, 0.2)
    watch.open(lambda: found)
    look(watch, clock, 1.0)
    assert told == [], "nothing is on its way"
    found[:] = [one(5, 0.4)]
    look(watch, clock, 1.0)
    assert told == [], "it has just begun"
    found[:] = [one(5, 1.5), one(10, 0.1)]
    look(watch, clock, 1.0)
    for _ in range(4):
        look(watch, clock, 0.2)
    assert [event.unfinished for event in told] == [tuple(found)]
    found[:] = []
    look(watch, clock, 0.2)
    look(watch, clock, 1.0)
    assert [event.unfinished for event in told[1:]] == [()], "the end is told once"


def test_nothing_is_looked_at_after_the_end(watched):
    watch, told, clock = watched
    watch.open(lambda: pytest.fail("the engine is closed"))
    watch.close()
    look(watch, clock, 1.0)
    assert told == []


def test_the_end_waits_for_a_look_that_is_under_way(watched):
    watch, _, clock = watched
    looking, go_on, ended = threading.Event(), threading.Event(), []

    def unfinished():
        looking.set()
        go_on.wait(30)
        ended.append("look")
        return []

    watch.open(unfinished)
    clock[0] += 1.0
    thread = threading.Thread(target=watch.look)
    thread.start()
    assert looking.wait(30)
    closing = threading.Thread(target=lambda: (watch.close(), ended.append("close")))
    closing.start()
    go_on.set()
    thread.join()
    closing.join()
    assert ended == ["look", "close"]


def test_stats_have_the_newest_of_it_without_what_has_ended_since():
    stats = Stats()
    stats.on(Progress(unfinished=(one(5, 1.5), one(10, 1.5), one(15, 1.5))))
    stats.on(External(step=5, seconds=2.0, written=1.0))
    stats.on(Failed(step=10, message="", raised=False, reported=True))
    assert stats.unfinished == (one(15, 1.5),)
    stats.on(Progress(unfinished=()))
    assert stats.unfinished == ()
