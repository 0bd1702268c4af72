"""What a training keeps of what it did is bounded."""

import pytest

from deepfreeze.training.stats import BINS, KEPT, Stats


def test_many_checkpoints_leave_the_newest_thousand_and_all_counts():
    stats = Stats()
    for step in range(20_000):
        stats.note_capture(step, 0.0005 if step % 2 else 0.02)
        stats.note_commit(step, 1.0)
        stats.skipped.append(step)
    assert stats.captures == stats.commits == 20_000
    assert stats.steps == stats.skipped == list(stats.committed) == list(range(20_000 - KEPT, 20_000))
    assert len(stats.blocking) == KEPT and sum(stats.histogram.values()) == 20_000
    assert stats.histogram[0.001] == stats.histogram[0.03] == 10_000


def test_a_capture_that_held_training_up_for_longer_moves_to_its_bin():
    stats = Stats()
    stats.note_capture(5, 0.0)
    stats.note_capture(10, 0.0)
    stats.note_more_blocking(5, 0.05)
    stats.note_more_blocking(7, 9.0)  # no such capture
    assert stats.blocking == [0.05, 0.0] and stats.histogram[0.1] == stats.histogram[0.001] == 1
    assert sum(stats.histogram.values()) == 2


@pytest.mark.parametrize(("seconds", "bound"), [(0.0, 0.001), (0.001, 0.003), (9.99, 10.0), (1e6, BINS[-1])])
def test_every_time_has_a_bin(seconds, bound):
    stats = Stats()
    stats.note_capture(1, seconds)
    assert stats.histogram[bound] == 1
