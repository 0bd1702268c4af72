"""What less memory costs is worked out round by round."""

from __future__ import annotations

import pytest

from benchmarks import concurrency, goals
from benchmarks.report import Report


def report(rate: float, peak: float) -> Report:
    """Three rounds, of which one is slower. ``rate``: with 1.25 shards, over that with 2; ``peak``: with 2 shards, of the memory given."""
    made = Report("concurrency", "What does it cost?")
    for memory, of, most in ((1.25, rate, 0.5), (2.0, 1.0, peak)):
        row = made.row(workload="light", every=10, memory=memory, nbytes=int(memory * 1000), shard=1000, samples=50)
        row.add("rate", "1/s", [of * one for one in (4.0, 2.0, 4.0)]).add("peak", "B", [most * memory * 1000])
    return made


@pytest.mark.parametrize(("rate", "peak", "reached"), [(0.95, 1.0, [True, True]), (0.92, 1.01, [False, False])])
def test_rates_are_compared_with_those_of_the_same_round(rate, peak, reached):
    made = report(rate, peak)
    assert concurrency.ratios(made, made.rows[0]) == pytest.approx([rate] * 3)
    assert (
        f"| light | 10 | 1.25 | 0 | 0 | {4 * rate:.2f} | {rate:.3f} ({rate:.3f}..{rate:.3f}) |"
        in concurrency.tables(made)
    )
    found = goals._concurrency(made)
    assert [one.reached for one in found] == reached and all(one.sure for one in found)
    assert [one.verdict for one in goals._concurrency(None)] == ["-", "-"]
