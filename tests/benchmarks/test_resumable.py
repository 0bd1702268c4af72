"""What interruptions cost an accuracy is worked out seed by seed."""

from __future__ import annotations

import pytest

from benchmarks import goals, resumable
from benchmarks.report import Report


def report(other: int) -> Report:
    """Two seeds. ``other``: how many variables of the second one's resumed training differ."""
    made = Report("resumable", "What does it lose?", {"epochs": 2})
    figures = {
        resumable.WHOLE: [(0, [0.5, 0.75], 0), (0, [0.5, 0.7], 0)],
        resumable.SHUFFLED: [(2, [0.5, 0.65], 3), (1, [0.5, 0.7], 3)],
        resumable.RESUMED: [(2, [0.5, 0.75], 0), (1, [0.5, 0.7], other)],
    }
    for way, seeds in figures.items():
        for seed, (interruptions, accuracy, differing) in enumerate(seeds, 1):
            row = made.row(way=way, seed=seed, interruptions=interruptions)
            row.add("accuracy", "", accuracy).add("other values", "", [differing])
    return made


def test_accuracies_are_compared_with_those_of_the_same_seed():
    assert resumable.lost(report(0), resumable.SHUFFLED) == pytest.approx([0.1, 0.0])
    shown = resumable.tables(report(0))
    assert "| interrupted, shuffled anew | 1.5 | 67.50% (65.00%..70.00%) | +5.00% (+0.00%..+10.00%) | 0 of 2 |" in shown
    assert "| interrupted, Resumable | 1.5 | 72.50% (70.00%..75.00%) | +0.00% (+0.00%..+0.00%) | 2 of 2 |" in shown
    assert "| CheckFreq, Figure 6: ResNet18, shuffled anew | - | - | 13 % at most | - |" in shown


@pytest.mark.parametrize(("other", "reached"), [(0, True), (1, False)])
def test_one_bit_that_differs_misses_the_goal(other, reached):
    (found,) = goals._resumable(report(other))
    assert found.reached is reached and found.found == f"{2 - other} of 2 seeds"
    assert [one.verdict for one in goals._resumable(None)] == ["-"]
