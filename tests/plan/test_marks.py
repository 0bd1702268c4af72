"""From what marks have noted to the windows of a step."""

from __future__ import annotations

import numpy as np
import pytest

from deepfreeze.plan.step import marks
from deepfreeze.plan.step.marks import MarkNotes, MarkPlace
from deepfreeze.plan.step.profile import ProfiledWindow
from deepfreeze.plan.step.question import SavedTensor

# Seconds from the beginning of a step. Mark 2 runs before mark 1.
AT = (0.0, 0.3, 0.1, 0.8)
PLACES = (
    MarkPlace("the batch", "forward"),
    MarkPlace("update of b", "update", (1,), ()),
    MarkPlace("update of a", "update", (0,), (0,)),
    MarkPlace("the end", "between", (), (1,)),
)


def notes(steps: int = 12, step: float = 1.0, rate: float = 0.0, busy: float = 0.5, late: float = 0.0) -> MarkNotes:
    """Steps in succession. ``rate``: bytes that are written in a second, always; ``busy``: of two cores; ``late``: by how much each second
    step is longer from mark 1 on."""
    at = np.array([[n * step + one for one in AT] for n in range(steps)]) + 100.0
    at[1::2, [1, 3]] += late
    return MarkNotes(at, (at - 100.0) * 2 * busy + 5.0, (at - 100.0) * rate, at - 100.0)


def found(noted: MarkNotes) -> tuple[list[ProfiledWindow], list[MarkPlace]]:
    """The windows of a step, on two cores, and what happens in each."""
    arranged = marks.arranged(PLACES, noted)
    places = [place for _, place in arranged]
    return marks.windows(places, noted.of([mark for mark, _ in arranged]), 2.0, 5e9), places


def test_windows_follow_the_median_order_of_the_marks():
    windows, _ = found(notes())
    assert [one.name for one in windows] == ["the batch", "update of a", "update of b", "the end"]
    assert [one.seconds for one in windows] == pytest.approx([0.1, 0.2, 0.5, 0.2])
    assert [one.begin for one in windows] == pytest.approx([0.0, 0.1, 0.3, 0.8])
    assert {round(one.busy, 6) for one in windows} == {0.5} and {one.copy_rate for one in windows} == {5e9}
    assert all(one.spread < 0.5 and one.rate == 0 for one in windows)


def test_marks_that_are_noted_together_begin_one_window():
    noted = notes()
    noted.at[:, 1] = noted.at[:, 2] + 0.001
    windows, places = found(noted)
    assert [one.name for one in windows] == ["the batch", "update of a", "the end"]
    assert [one.seconds for one in windows] == pytest.approx([0.1, 0.7, 0.2])
    assert places[1].first_writes == (0, 1) and places[1].last_writes == (0,)


def test_a_window_that_changes_from_step_to_step_says_so():
    windows, _ = found(notes(late=0.15))
    assert [one.spread < 0.5 for one in windows] == [True, False, True, False]
    assert windows[1].seconds > 0.25


def test_the_shortest_windows_make_up_a_step_that_there_is():
    """The first or the last half of a step is short in turn: no step is short in both."""
    noted, lengths = notes(steps=25), np.ones((25, 4))
    lengths[0::2, :2], lengths[1::2, 2:] = 0.5, 0.5
    ends = np.cumsum(lengths, axis=1)
    begins = np.concatenate([[0.0], np.cumsum(ends[:, -1])[:-1]])
    noted.at[:] = begins[:, None] + np.concatenate([np.zeros((25, 1)), ends[:, :-1]], axis=1)
    noted.at[:, [1, 2, 3]] = noted.at[:, [2, 1, 3]]  # in the order of the marks
    windows, _ = found(noted)
    assert sum(one.shortest for one in windows) == sum(one.seconds for one in windows) == pytest.approx(3.0)


def test_the_rate_of_a_window_is_that_of_the_transfers_that_meet_it():
    """Transfers of 0.4 s each, from 0.1 s of a step on: 1 GB/s in the second window, half of it in the third."""
    noted = notes()
    written, writing = np.zeros_like(noted.at), np.zeros_like(noted.at)
    for step in (102, 105, 108):
        moments = [step + 0.1, step + 0.3, step + 0.8]
        written += np.interp(noted.at, moments, [0.0, 200e6, 450e6])
        writing += np.interp(noted.at, moments, [0.0, 0.2, 0.7])
    windows, _ = found(MarkNotes(noted.at, noted.cpu, written, writing))
    assert [one.rate for one in windows[1:3]] == pytest.approx([1e9, 0.5e9])
    # No transfer has met these two: the rate of all transfers together.
    assert [windows[0].rate, windows[3].rate] == pytest.approx([450e6 / 0.7] * 2)


def test_a_store_that_has_nothing_to_write_is_not_taken_for_a_slow_one():
    """A checkpoint in every step, each written in the first 0.55 of it."""
    noted = notes()
    into = noted.at % 1.0
    written = np.minimum(into, 0.55) * 1e9 + noted.at // 1.0 * 0.55e9
    windows, _ = found(MarkNotes(noted.at, noted.cpu, written, written / 1e9))
    assert [one.rate for one in windows] == pytest.approx([1e9] * 4)


def test_a_block_that_is_counted_at_its_end_was_written_since_the_one_before():
    """Blocks of 150 MB, each counted when it is done: every other window notes one."""
    at = 100.0 + np.arange(48).reshape(12, 4) / 4
    written = np.floor((at - 99.75) * 2) * 150e6
    windows, _ = found(MarkNotes(at, at, written, at))
    assert [one.rate for one in windows] == pytest.approx([300e6] * 4, rel=0.1), "the last one is not counted yet"


def test_marks_that_do_not_run_in_every_step_are_found():
    noted = notes()
    noted.at[3, 2] = 0
    assert marks.absent(noted) == [2]
    assert noted.of([0, 1, 3]).at.shape == (12, 3)


def test_tensors_are_written_to_in_the_windows_of_their_marks():
    saved = [("a", 10, False), ("b", 20, False), ("frozen", 30, False), ("mean", 40, True)]
    assert marks.tensors([PLACES[mark] for mark in (0, 2, 1, 3)], saved) == [
        SavedTensor("a", 10, 1),
        SavedTensor("b", 20, 2, ready=3),  # the weight is clipped behind its update
        SavedTensor("frozen", 30, 3),
        SavedTensor("mean", 40, 0, ready=3),
    ]


def test_of_several_ranks_the_slowest_counts():
    def windows(seconds: float, busy: float, rate: float) -> list[ProfiledWindow]:
        return [
            ProfiledWindow(f"{n}", "forward", n * seconds, seconds, seconds, 0.0, busy, 0, rate, 5e9) for n in range(3)
        ]

    # The third rank has nothing to write, so it has no rate.
    slowest = marks.slowest([windows(0.1, 0.9, 1e9), windows(0.2, 0.5, 2e9), windows(0.1, 0.1, 0.0)])
    assert [(one.seconds, one.busy, one.rate) for one in slowest] == [(0.2, 0.9, 1e9)] * 3
    assert [one.begin for one in slowest] == pytest.approx([0.0, 0.2, 0.4])


@pytest.mark.parametrize(
    ("sizes", "most", "groups"),
    [
        ([], 3, []),
        ([5], 3, [1]),
        ([1, 1, 1, 1, 1, 1], 3, [2, 2, 2]),
        ([9, 1, 1, 1], 2, [1, 3]),
        ([1, 1, 1, 9], 2, [3, 1]),
        ([1, 1, 1], 5, [1, 1, 1]),
        ([0, 0, 0, 0], 2, [1, 3]),
    ],
)
def test_neighbours_make_groups_of_about_as_many_bytes(sizes, most, groups):
    groups_found = marks.grouped(sizes, most)
    assert [len(one) for one in groups_found] == groups
    assert [number for one in groups_found for number in one] == list(range(len(sizes)))


def test_marks_that_change_places_in_some_steps_make_no_negative_rates():
    """In two of three steps mark 1 comes 20 ms behind mark 2, where the store is slow; else 12 ms before it, where it is fast."""
    noted = notes()
    noted.at[:, 2], noted.at[:, 1] = noted.at[:, 0] + 0.3, noted.at[:, 0] + 0.32
    noted.at[::3, 2], noted.at[::3, 1] = noted.at[::3, 0] + 0.112, noted.at[::3, 0] + 0.1
    noted.written[:] = [
        [np.interp(at % 1.0, [0.0, 0.05, 0.2, 1.0], [0, 5e6, 155e6, 235e6]) + at // 1.0 * 235e6 for at in step]
        for step in noted.at
    ]
    noted.writing[:] = noted.at - 100.0
    windows, _ = found(noted)
    assert [one.name for one in windows] == ["the batch", "update of a", "update of b", "the end"]
    assert all(one.rate > 0 and one.shortest >= 0 for one in windows)
