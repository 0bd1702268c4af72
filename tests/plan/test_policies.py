"""The policies that DeepFreeze brings, each by itself."""

import signal

import pytest
from hypothesis import strategies as st

from deepfreeze.errors import OptionError
from deepfreeze.plan import NEVER, EveryEpoch, EverySeconds, EverySteps, FirstOf, Never, Observation, OnSignal, Wish
from deepfreeze.plan.every import as_policy
from deepfreeze.plan.policy import parts, signals
from tests.support.properties import holds


def seen(step, seconds=1.0, blocking=0.0, captured=None, rank=0, heard=()):
    return Observation(
        step=step,
        steps=1,
        seconds=seconds,
        captured=captured,
        blocking=blocking,
        reports=[],
        in_flight=0,
        nbytes=1,
        rank=rank,
        signals=heard,
    )


def test_every_seconds_wishes_on_rank_0_when_its_time_has_passed():
    """Every seconds wishes on rank 0 when its time has passed since the last capture."""
    policy = EverySeconds(5)
    assert [policy.observe(seen(step)).now for step in range(1, 5)] == [False] * 4
    assert policy.observe(seen(5, blocking=0.5)).now and policy.observe(seen(6)).now, "until a step is captured"
    assert not policy.observe(seen(7, captured=7)).now
    assert [policy.observe(seen(step)).now for step in range(8, 13)] == [False] * 4 + [True]
    assert not any(EverySeconds(1).observe(seen(step, rank=1)).now for step in range(9))
    assert policy.next_step(3) == NEVER and str(policy) == "EverySeconds(seconds=5.0)"


def test_every_epoch_asks_for_the_last_step_of_every_nth_epoch():
    policy = EveryEpoch(2)
    policy.epoch_ends(1, 10)
    assert policy.next_step(0) == NEVER
    policy.epoch_ends(2, 20)
    assert [policy.next_step(step) for step in (10, 19, 20)] == [20, 20, NEVER]
    policy.epoch_ends(3, None)
    assert policy.next_step(20) == NEVER and str(policy) == "EveryEpoch(n=2, skip=0)"


def test_of_the_first_epochs_or_steps_that_are_skipped_none_is_saved():
    epochs, steps = EveryEpoch(2, skip=4), EverySteps(10, skip=25)
    asked = []
    for epoch in range(1, 9):
        epochs.epoch_ends(epoch, 5 * epoch)
        asked.append(epochs.next_step(5 * epoch - 5))
    assert [step for step in asked if step != NEVER] == [30, 40] and str(epochs) == "EveryEpoch(n=2, skip=4)"
    assert [steps.next_step(step) for step in (0, 9, 25, 30, 31)] == [30, 30, 30, 40, 40]
    assert EverySteps(10, skip=30).next_step(0) == 40 and str(steps) == "EverySteps(10, skip=25)"


def test_on_signal_wishes_where_its_signal_was_heard():
    policy = OnSignal("SIGUSR1")
    assert policy.observe(seen(1, heard=(signal.SIGUSR1,))) == Wish(now=True)
    assert policy.observe(seen(2, heard=(signal.SIGUSR2,))) == Wish() == policy.observe(seen(3))
    assert policy == OnSignal(signal.SIGUSR1) == OnSignal(int(signal.SIGUSR1)) and str(policy) == "OnSignal(SIGUSR1)"


@holds(intervals=st.lists(st.integers(1, 50), min_size=1, max_size=4), step=st.integers(0, 10**6))
def test_first_of_asks_for_the_nearest_step_of_its_parts(intervals, step):
    nested = FirstOf(Never(), *intervals[:1], FirstOf(Never(), *intervals[1:]))
    assert nested.next_step(step) == min(EverySteps(k).next_step(step) for k in intervals)


def test_the_parts_of_a_policy_are_told_and_heard_each_by_itself():
    policy = FirstOf(100, "epoch", FirstOf(EverySeconds(60), OnSignal("SIGUSR1")), OnSignal("SIGUSR2"))
    assert [type(part).__name__ for part in parts(policy)] == [
        "FirstOf", "EverySteps", "EveryEpoch", "FirstOf", "EverySeconds", "OnSignal", "OnSignal",
    ]  # fmt: skip
    assert signals(policy) == (signal.SIGUSR1, signal.SIGUSR2)
    assert str(policy) == (
        "FirstOf(100, EveryEpoch(n=1, skip=0), FirstOf(EverySeconds(seconds=60.0), OnSignal(SIGUSR1)), OnSignal(SIGUSR2))"
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: EverySteps(0), r"EverySteps\(k\): expected a whole number from 1 "),
        (lambda: EverySteps(1.5), r"EverySteps\(k\)"),
        (lambda: EverySteps(5, skip=-1), r"EverySteps\(skip=\): expected a whole number from 0 "),
        (lambda: EverySeconds(0), r"EverySeconds\(seconds\): expected seconds, more than 0"),
        (lambda: EverySeconds("60"), r"EverySeconds\(seconds\)"),
        (lambda: EveryEpoch(0), r"EveryEpoch\(n\): expected a whole number from 1 "),
        (lambda: EveryEpoch(skip=-1), r"EveryEpoch\(skip=\): expected a whole number from 0 "),
        (lambda: OnSignal("SIGUSR3"), r"OnSignal\(number\): expected a signal that a program can handle"),
        (lambda: OnSignal(signal.SIGKILL), r"OnSignal\(number\)"),
        (lambda: OnSignal(True), r"OnSignal\(number\)"),
        (lambda: FirstOf(), r"FirstOf\(\): expected one policy or more"),
        (
            lambda: FirstOf(10, "often"),
            r"every=: expected a whole number of steps, 1 or more, 'auto', 'epoch', or a policy",
        ),
    ],
    ids=[
        "steps-0",
        "steps-1.5",
        "steps-skip",
        "seconds-0",
        "seconds-text",
        "epoch-0",
        "epoch-skip",
        "signal-3",
        "kill",
        "true",
        "none",
        "word",
    ],
)
def test_a_policy_with_a_wrong_argument_is_refused(make, message):
    with pytest.raises(OptionError, match=message):
        make()


def test_the_words_and_numbers_of_every_stand_for_policies():
    assert as_policy("epoch") == EveryEpoch() and as_policy(15) == EverySteps(15)
