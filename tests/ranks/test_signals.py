"""The first SIGTERM is noted, the second one does what it did before, and nothing is left behind."""

import signal
import threading

import pytest

from deepfreeze.notices import unheard
from deepfreeze.ranks.signals import Sigterm


@pytest.fixture
def heard():
    """Numbers that the user's own handler was called with."""
    numbers: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: numbers.append(number))
    yield numbers
    signal.signal(signal.SIGTERM, before)


def test_the_first_signal_is_noted_the_second_goes_to_the_user(heard):
    """The first signal is noted and the second goes to the users handler."""
    sigterm = Sigterm(unheard)
    signal.raise_signal(signal.SIGTERM)
    assert (sigterm.received, heard) == (signal.SIGTERM, [])
    signal.raise_signal(signal.SIGTERM)
    assert heard == [signal.SIGTERM]


def test_closing_gives_the_users_handler_back(heard):
    Sigterm(unheard).close()
    signal.raise_signal(signal.SIGTERM)
    assert heard == [signal.SIGTERM]


def test_one_that_is_closed_out_of_order_still_passes_the_signal_on(heard):
    first, second = Sigterm(unheard), Sigterm(unheard)
    first.close()
    second.close()  # puts the first one's handler back
    signal.raise_signal(signal.SIGTERM)
    assert heard == [signal.SIGTERM] and not first.received


def test_a_handler_that_was_put_over_it_stays(heard):
    sigterm = Sigterm(unheard)
    own: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: own.append(number))
    sigterm.close()
    signal.raise_signal(signal.SIGTERM)
    assert own == [signal.SIGTERM]


def test_in_a_thread_the_signal_is_left_alone(heard):
    thread = threading.Thread(target=lambda: Sigterm(unheard).close())
    thread.start()
    thread.join()
    signal.raise_signal(signal.SIGTERM)
    assert heard == [signal.SIGTERM]
