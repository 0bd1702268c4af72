"""The bound of what a kill costs, as a function of measured times."""

import math

import pytest
from hypothesis import strategies as st

from deepfreeze.plan.recovery import Recovery, checkfreq, recovery, synchronous
from tests.support.properties import holds

intervals, most = st.integers(1, 50), st.integers(1, 6)
seconds = st.floats(1e-3, 10)


def test_the_bound_is_the_papers():
    """PCcheck, section 4: l + f t + t min(N f, Tw / t)."""
    assert recovery(10, 2, 0.5, 4.0, load=3.0) == Recovery(steps=18, seconds=12.0)
    assert recovery(10, 2, 0.5, 100.0, load=3.0) == Recovery(steps=30, seconds=18.0), "training waits for commits"
    assert checkfreq(10, 0.5, load=3.0) == Recovery(20, 13.0) == recovery(10, 1, 0.5, 5.0, load=3.0)
    assert synchronous(10, 0.5, load=3.0) == Recovery(10, 8.0) == recovery(10, 4, 0.5, 0.0, load=3.0)


def test_a_whole_number_of_steps_is_not_one_more_by_rounding():
    assert 0.14 / 0.02 > 7 and recovery(20, 1, 0.02, 0.14).steps == 27


def test_steps_count_at_their_fastest_and_seconds_at_their_pace():
    """A checkpoint adds 1 s to 10 steps of 0.5 s. In 4 s there may be 8 steps without a checkpoint; 10 steps take 6 s."""
    assert recovery(10, 2, 0.5, 4.0, cost=1.0) == Recovery(steps=18, seconds=10.0)
    assert checkfreq(10, 0.5, cost=1.0) == Recovery(20, 12.0) and synchronous(10, 0.5, cost=1.0) == Recovery(10, 6.0)


def test_a_checkpoint_left_out_adds_an_interval_and_a_late_capture_its_steps():
    assert recovery(10, 1, 0.5, 100.0, left_out=2) == Recovery(40, 20.0)
    assert recovery(10, 1, 0.5, 100.0, behind=4) == Recovery(24, 12.0)


def worst(interval, uncommitted, step, commit, transfers, checkpoints=12):
    """A training, step by step, whose commits take ``commit`` seconds from the hand-over or the last one's commit on. Returns the most
    finished steps, and the most seconds without those that training waited, between the newest committed checkpoint and any moment; and
    the longest time from a hand-over to its commit."""
    now, waited, lost, trained, slowest = 0.0, 0.0, 0, 0.0, 0.0
    ends, begun = [0.0], {0: 0.0}  # of the commits, in order; the seconds of training at each checkpoint
    for number in range(1, checkpoints * interval + 1):
        if number % interval == 0:  # training waits for room before this step
            free = ends[max(0, len(ends) - uncommitted)]
            waited, now = waited + max(0.0, free - now), max(now, free)
        now += step
        newest = max(n for n, end in enumerate(ends) if end < now or n == 0)  # a commit at the very end comes too late
        lost = max(lost, number - newest * interval)
        trained = max(trained, now - waited - begun[newest])
        if number % interval == 0:
            begun[len(ends)] = now - waited
            ends.append(max(now, ends[-1] if len(ends) > 1 and not transfers else 0.0) + commit)
            slowest = max(slowest, ends[-1] - now)
    return lost, trained, slowest


@holds(interval=intervals, uncommitted=most, step=seconds, commit=seconds, transfers=st.booleans())
def test_no_moment_of_a_simulated_training_loses_more(interval, uncommitted, step, commit, transfers):
    """Whether one checkpoint is written after the other or all at once."""
    lost, trained, slowest = worst(interval, uncommitted, step, commit, transfers)
    bound = recovery(interval, uncommitted, step, slowest)
    assert lost <= bound.steps <= (uncommitted + 1) * interval
    assert trained <= bound.seconds * (1 + 1e-6)


@pytest.mark.parametrize("uncommitted", [1, 2, 4])
def test_the_bound_is_reached_but_for_one_step(uncommitted):
    """So an interval less would be too little: where training waits, and where it does not."""
    lost, _, slowest = worst(5, uncommitted, 1.0, 1000.0, False)
    assert lost == recovery(5, uncommitted, 1.0, slowest).steps - 1 == 5 * (uncommitted + 1) - 1
    lost, _, slowest = worst(20, uncommitted, 1.0, 7.5, False)
    assert lost == recovery(20, uncommitted, 1.0, slowest).steps - 1 == 20 + math.floor(7.5)
