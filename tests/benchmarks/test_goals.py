"""A goal is judged by the samples of the benchmark's own rows."""

from __future__ import annotations

import pytest

from benchmarks import goals, restore
from benchmarks.report import Report


@pytest.mark.parametrize(
    ("ours", "tensorflow", "plain", "reached"),
    [(0.14, 0.3, 0.01, True), (0.16, 0.3, 0.1, False), (0.16, 0.3, 0.11, True), (0.14, 0.2, 0.09, False)],
)
def test_many_tensors_are_judged_by_the_larger_of_both_bounds(ours, tensorflow, plain, reached):
    made = Report("restore", "How long?")
    for what, seconds in ((restore.WARM, ours), (restore.TENSORFLOW, tensorflow), (restore.PLAIN, plain)):
        made.row(workload="resnet50", what=what).add("seconds", "s", [seconds] * 5)
    found = goals._many_tensors(made)
    assert found.reached is reached and found.sure
    assert found.found.startswith(f"{ours / tensorflow:.2f}x, {ours / plain:.2f}x ({ours * 1e3:.0f}")
