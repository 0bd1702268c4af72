"""Batches are read ahead by threads, in order and not too many, and no thread is left behind."""

import gc
import sys
import threading
import weakref

import pytest

from deepfreeze.data.read_ahead import ReadAhead
from tests.support import processes


def threads():
    return [thread for thread in threading.enumerate() if thread.name == "deepfreeze-data"]


def end_of_threads():
    for thread in threads():
        thread.join(60)
    return not threads()


@pytest.mark.parametrize("count", [0, 1, 3])
def test_results_come_in_order_whatever_thread_makes_them(count):
    gates = [threading.Event() for _ in range(30)]

    def make(number):
        if count == 3 and number % 3 == 0:  # made after the two behind it
            assert gates[number + 1].wait(60) and gates[number + 2].wait(60)
        gates[number].set()
        return number

    assert list(ReadAhead(make, 30, count, 6)) == list(range(30))
    assert end_of_threads()


def test_only_so_many_are_read_ahead_and_then_no_thread_is_left():
    made = []
    ahead = ReadAhead(lambda number: made.append(number) or number, 100, 2, 5)
    assert made == [] and not threads()
    assert next(ahead) == 0 and end_of_threads()
    assert sorted(made) == list(range(6))
    assert next(ahead) == 1 and end_of_threads()
    assert sorted(made) == list(range(7))


def test_never_more_threads_than_wanted_make_results():
    """Also where others have ended for want of room, and many are taken at once."""
    going_on = threading.Event()
    going_on.set()

    def make(number):
        assert going_on.wait(60)
        return number

    ahead = ReadAhead(make, 100, 2, 8)
    assert next(ahead) == 0 and end_of_threads()
    going_on.clear()
    assert [next(ahead) for _ in range(8)] == [*range(1, 9)] and len(threads()) == 2
    going_on.set()
    assert end_of_threads()


def test_an_error_comes_where_its_result_would_and_ends_it():
    def make(number):
        if number == 3:
            raise KeyError("the fourth")
        return number

    for count in (0, 2):
        ahead = ReadAhead(make, 10, count, 4)
        assert [next(ahead) for _ in range(3)] == [0, 1, 2]
        with pytest.raises(KeyError, match="the fourth"):
            next(ahead)
        assert list(ahead) == [] and end_of_threads()


def test_who_waits_for_a_result_is_released_by_a_stop():
    begun, going_on = threading.Event(), threading.Event()

    def make(number):
        begun.set()
        assert going_on.wait(60)

    ahead, got = ReadAhead(make, 4, 1, 2), []
    waiting = threading.Thread(target=lambda: got.append([*ahead]))
    waiting.start()
    assert begun.wait(60)
    ahead.stop()
    waiting.join(60)
    assert got == [[]] and not waiting.is_alive()
    going_on.set()
    assert end_of_threads()


def test_what_was_read_ahead_is_dropped_by_a_stop():
    made = []

    def make(number):
        thing = threading.Event()
        made.append(weakref.ref(thing))
        return thing

    ahead = ReadAhead(make, 100, 2, 4)
    next(ahead)
    assert end_of_threads() and len(made) == 5
    ahead.stop()
    gc.collect()
    assert [one() for one in made] == [None] * 5 and ahead.finished


def test_what_nobody_takes_from_is_forgotten():
    ahead = ReadAhead(lambda number: bytes(1000), 100, 2, 4)
    next(ahead)
    assert end_of_threads()
    seen = weakref.ref(ahead)
    del ahead
    gc.collect()
    assert seen() is None


@pytest.mark.slow
def test_a_process_ends_although_much_is_left_to_be_read_ahead():
    """After its main thread has ended only a batch that somebody waits for is made: the thread that waits gets all of its batches."""
    code = """
import threading, time
from deepfreeze.data.read_ahead import ReadAhead
made = []
lone = ReadAhead(lambda number: made.append(number) or time.sleep(0.05), 10**6, 2, 10**6)
next(lone)
other = ReadAhead(lambda number: time.sleep(0.01) or number, 20, 2, 10)
threading.Thread(target=lambda: print(sum(other), len(made) < 100)).start()
"""
    done = processes.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["190", "True"]
