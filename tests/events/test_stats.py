"""What a training keeps of what it did is bounded."""

import pytest

from deepfreeze.events.event import Blocked, Captured, External, Progress, Skipped, Superseded, Unfinished
from deepfreeze.events.stats import BINS, KEPT, Stats


def enter(stats, step, seconds):
    stats.on(Captured(step=step, nbytes=10))
    stats.on(Blocked(step=step, seconds=seconds))


def test_many_checkpoints_leave_the_newest_thousand_and_all_counts():
    stats = Stats()
    for step in range(20_000):
        enter(stats, step, 0.0005 if step % 2 else 0.02)
        stats.on(External(step=step, seconds=1.0, written=0.5))
        stats.on(Skipped(step=step, why="full"))
    assert stats.captures == stats.commits == 20_000
    assert stats.steps == stats.skipped == list(stats.committed) == list(range(20_000 - KEPT, 20_000))
    assert len(stats.blocking) == KEPT and sum(stats.histogram.values()) == 20_000
    assert stats.histogram[0.001] == stats.histogram[0.03] == 10_000


def test_a_step_that_was_given_up_is_no_longer_on_its_way_and_no_failure():
    stats = Stats()
    under_way = tuple(Unfinished(step, "captured", 1, 0, 0, False, 1.0, "") for step in (5, 10))
    stats.on(Progress(unfinished=under_way))
    stats.on(Superseded(step=5, by=10))
    assert stats.superseded == [5] and stats.given_up == 1 and stats.commits == 0
    assert [one.step for one in stats.unfinished] == [10]


def test_a_capture_that_held_training_up_moves_to_its_bin():
    stats = Stats()
    enter(stats, 5, 0.05)
    stats.on(Captured(step=10, nbytes=10))
    stats.on(Blocked(step=7, seconds=9.0))  # no such capture
    assert stats.blocking == [0.05, 0.0] and stats.histogram[0.1] == stats.histogram[0.001] == 1
    assert sum(stats.histogram.values()) == 2


@pytest.mark.parametrize(("seconds", "bound"), [(0.0, 0.001), (0.001, 0.003), (9.99, 10.0), (1e6, BINS[-1])])
def test_every_time_has_a_bin(seconds, bound):
    stats = Stats()
    enter(stats, 1, seconds)
    assert stats.histogram[bound] == 1
