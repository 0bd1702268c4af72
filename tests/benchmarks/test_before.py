"""Older figures beside those of today: each line has both."""

from __future__ import annotations

from benchmarks import before
from benchmarks.report import RESULTS, Report


def test_each_line_has_a_figure_of_before_and_one_of_now():
    published = Report.load(before.FILE)
    lines = list(before.quantities())
    assert [row.labels for row in published.rows] == [line.key for line in lines], "no row without a line, none twice"
    for line in lines:
        earlier, now = (
            published.find(**line.key).values["found"],
            line.of(Report.load(RESULTS / f"{line.benchmark}.json")),
        )
        assert earlier["unit"] == now["unit"], line.key
        assert earlier["min"] <= earlier["median"] <= earlier["max"]


def test_older_results_give_the_same_lines():
    made = before.taken(RESULTS, "abc", "2026-01-01")
    assert made.settings == {"commit": "abc", "date": "2026-01-01"}
    for line in before.tables(made).splitlines()[2:]:
        earlier, now = line.removesuffix(" |").split(" | ")[-2:]
        assert earlier == now
