"""Older figures beside those of today: each line has both."""

from __future__ import annotations

import shutil

from benchmarks import before, two_versions
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


def test_two_versions_stand_beside_each_other_with_the_samples_of_all_rounds(tmp_path):
    for benchmark in two_versions.BENCHMARKS:
        for number in range(2):
            for side in ("before", "now"):
                shutil.copy(RESULTS / f"{benchmark}.json", tmp_path / f"{benchmark}-{number}-{side}.json")
    slower = Report.load(tmp_path / "peers-1-now.json")
    labels = {"workload": "nt3", "approach": "DeepFreeze"}
    slower.find(**labels).add("durable", "s", [9.0, 9.0, 9.0, 9.0])
    slower.save(tmp_path / "peers-1-now.json")
    made = two_versions.gathered(tmp_path, 2, "abc")
    once = Report.load(RESULTS / "peers.json").find(**labels).samples("durable")
    found = made.find(benchmark="peers", what="NT3, durable")
    assert found.samples("before") == once * 2
    assert found.samples("now") == once + [9.0] * 4
    lines = two_versions.tables(made).splitlines()
    assert len(lines) == 2 + len(list(two_versions.compared())) and "before, abc" in lines[0]
    for line in lines[2:]:
        earlier, now, ratio = line.removesuffix(" |").split(" | ")[-3:]
        if "NT3, durable" in line:
            assert float(ratio) > 2
        else:
            assert earlier == now and ratio in ("1.00", "-")
