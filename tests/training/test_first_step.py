"""How long a job took until its first new step: noted once in a process, from the process's own beginning."""

import os
import sys
import time

import pytest

from deepfreeze.events.event import Started
from deepfreeze.events.events import Events, as_listener
from deepfreeze.process_state import PROCESS
from deepfreeze.training.first_step import FirstStep, process_age

BEGUN = 5.0  # seconds before the first step at which the attempt begins


@pytest.fixture(autouse=True)
def nothing_noted(monkeypatch):
    monkeypatch.setattr(PROCESS, "first_step", None)


def attempt(heard, steps):
    """An attempt, BEGUN seconds old, that does these steps."""
    events = Events([as_listener(heard.append)])
    first = FirstStep(events, time.monotonic() - BEGUN)
    for step in steps:
        first.done(step)
    events.flush()


def test_a_process_tells_its_first_step_once():
    heard = []
    before = process_age()
    attempt(heard, [41, 42])
    attempt(heard, [43])
    after = process_age()
    (event,) = heard
    assert isinstance(event, Started) and (event.kind, event.step, event.since) == ("started", 41, "process")
    assert before <= event.seconds + 0.002 and event.seconds <= after + 0.002, "rounded to milliseconds"


def test_a_forked_child_has_a_first_step_of_its_own(monkeypatch):
    attempt([], [1])
    heard = []
    parent = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: parent + 1)
    attempt(heard, [2])
    assert [event.step for event in heard] == [2]


@pytest.mark.parametrize("why", ["another system", "a session"])
def test_without_a_beginning_of_the_process_the_attempts_counts(monkeypatch, why):
    heard = []
    if why == "a session":
        monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    else:
        monkeypatch.delattr(time, "CLOCK_BOOTTIME")
    begin = time.monotonic()
    attempt(heard, [7])
    (event,) = heard
    assert event.since == "attempt" and BEGUN <= event.seconds <= BEGUN + time.monotonic() - begin + 0.001


def test_the_age_of_a_process_is_counted_from_its_beginning():
    """A forked child begins with the fork. The system counts in hundredths of a second."""
    begin, (theirs, mine) = time.monotonic(), os.pipe()
    child = os.fork()
    if child == 0:
        time.sleep(0.1)
        os.write(mine, repr(process_age()).encode())
        os._exit(0)
    os.waitpid(child, 0)
    most = time.monotonic() - begin
    assert 0.1 - 0.01 <= float(os.read(theirs, 100)) <= most + 0.01
    os.close(theirs)
    os.close(mine)
