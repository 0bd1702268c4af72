"""The first signal is noted, the second one does what it did before, and nothing is left behind."""

import os
import signal
import threading

import pytest

from deepfreeze.notices import unheard
from deepfreeze.ranks.signals import Signals

TERM, USR1, USR2 = signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2


@pytest.fixture
def heard():
    """Numbers that the user's own handler was called with."""
    numbers: list[int] = []
    before = {one: signal.signal(one, lambda number, frame: numbers.append(number)) for one in (TERM, USR1, USR2)}
    yield numbers
    for number, handler in before.items():
        signal.signal(number, handler)


def test_the_first_signal_is_noted_the_second_goes_to_the_user(heard):
    """The first signal is noted and the second goes to the users handler."""
    signals = Signals([TERM, USR2], [], unheard)
    signal.raise_signal(USR2)
    signal.raise_signal(TERM)
    assert (signals.last, heard) == (USR2, []), "each number has a first time"
    signal.raise_signal(TERM)
    assert heard == [TERM]
    signals.close()


def test_a_signal_for_the_policy_is_noted_each_time_and_goes_to_the_user(heard):
    signals = Signals([TERM], [USR1], unheard)
    for _ in range(3):
        signal.raise_signal(USR1)
    assert (signals.take(), signals.take(), signals.last) == ((USR1, USR1, USR1), (), 0)
    assert heard == [USR1] * 3
    signals.close()
    signal.raise_signal(USR1)
    assert heard == [USR1] * 4 and signals.take() == ()


def test_a_signal_for_the_policy_without_a_handler_does_no_harm(heard):
    """By default it would end the process."""
    signal.signal(USR1, signal.SIG_DFL)
    signals = Signals([], [USR1], unheard)
    signal.raise_signal(USR1)
    assert signals.take() == (USR1,)
    signals.close()
    assert signal.getsignal(USR1) == signal.SIG_DFL


def test_a_signal_for_two_trainings_ends_no_process_after_the_first_one():
    before = signal.signal(USR1, signal.SIG_DFL)
    first, second = Signals([], [USR1], unheard), Signals([], [USR1], unheard)
    first.close()
    signal.raise_signal(USR1)
    assert second.take() == (USR1,) and first.take() == ()
    second.close()
    signal.signal(USR1, before)


def test_a_policys_interrupt_raises_nothing():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    signals = Signals([], [signal.SIGINT], unheard)
    signal.raise_signal(signal.SIGINT)
    assert signals.take() == (signal.SIGINT,)
    signals.close()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("number", [TERM, USR1], ids=["last", "policy"])
def test_a_forked_child_ends_by_a_signal_as_it_would_have_before(number):
    """Python's pools end their workers by SIGTERM, and wait for them."""
    before = signal.signal(number, signal.SIG_DFL)
    signals = Signals([TERM], [USR1], unheard)
    child = os.fork()
    if child == 0:
        try:
            signal.raise_signal(number)
        finally:
            os._exit(0)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == number
    assert signals.last == 0 and signals.take() == ()
    signals.close()
    signal.signal(number, before)


def test_closing_gives_the_users_handler_back(heard):
    Signals([TERM, USR2], [USR1], unheard).close()
    for number in (TERM, USR1, USR2):
        signal.raise_signal(number)
    assert heard == [TERM, USR1, USR2]


def test_one_that_is_closed_out_of_order_still_passes_the_signal_on(heard):
    first, second = Signals([TERM], [], unheard), Signals([TERM], [], unheard)
    first.close()
    second.close()  # puts the first one's handler back
    signal.raise_signal(TERM)
    assert heard == [TERM] and not first.last


def test_a_handler_that_was_put_over_it_stays(heard):
    signals = Signals([TERM], [], unheard)
    own: list[int] = []
    signal.signal(TERM, lambda number, frame: own.append(number))
    signals.close()
    signal.raise_signal(TERM)
    assert own == [TERM]


def test_in_a_thread_the_signal_is_left_alone(heard):
    told: list[str] = []
    thread = threading.Thread(target=lambda: Signals([TERM], [USR1], lambda level, text: told.append(text)).close())
    thread.start()
    thread.join()
    signal.raise_signal(TERM)
    assert heard == [TERM]
    assert "SIGTERM, SIGUSR1 is not heard" in told[0]
