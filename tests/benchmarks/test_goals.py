"""A goal is judged by the samples of the benchmark's own rows."""

from __future__ import annotations

import pytest

from benchmarks import goals, overhead_periods, restore
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


def periods(checkpoint: float, plan: overhead_periods.Plan = overhead_periods.PLANS[0]) -> dict:
    """A round in which a captured step takes as many seconds more as ``checkpoint`` says, and as much more CPU. A plain step takes 1 s in
    the first turn, and a millisecond more in each turn after it: a machine that slows down."""
    turns = [[1.0 + turn / 1000] * plan.every for turn in range(2 * plan.periods + 1)]
    for turn in range(1, len(turns), 2):
        turns[turn][0] += checkpoint * turns[turn][1]
    return {"seconds": turns, "process": turns, "cpu": 1.6, "nbytes": 1_000_000_000}


@pytest.mark.parametrize(
    ("checkpoint", "reached"),
    [
        (0.05, [True] * 5),
        (0.11, [True, True, True, False, True]),
        (0.2, [True, True, *[False] * 3]),
        (0.5, [False] * 5),
    ],
)
def test_a_checkpoint_is_compared_with_plain_steps_and_with_neighbours(checkpoint, reached):
    made = Report("overhead", "How much?")
    made.machine["cores"] = 2
    overhead_periods.add(made, [periods(checkpoint)] * 2, overhead_periods.PLANS[0])
    row = overhead_periods.row(made, "resnet50")
    assert len(row.samples("slowdown")) >= 30, "the goal asks for as many periods"
    assert [row.median(name) for name in ("slowdown", "neighbours")] == pytest.approx([1 + checkpoint / 10] * 2)
    assert row.median("captured step") == pytest.approx(checkpoint, rel=0.02)
    assert row.median("next step") == 0
    assert row.median("engine's CPU") == pytest.approx(0.1), "of 16 checkpoints"
    assert row.median(overhead_periods.SHARE) == pytest.approx(checkpoint / 20)
    found = goals._periods(row, overhead_periods.PLANS[0])
    assert [one.reached for one in found] == reached and all(one.sure for one in found)
    assert {one.verdict for one in goals._periods(None, overhead_periods.PLANS[1])} == {"-"}, (
        "older results: the goals are named all the same"
    )
