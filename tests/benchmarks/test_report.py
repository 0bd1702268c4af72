"""The benchmarks' harness: what is measured comes back from the JSON file as it was."""

from __future__ import annotations

import json

import pytest

from benchmarks import report
from benchmarks.report import Report, span


def example() -> Report:
    made = Report("example", "Does it work?", {"every": 15})
    made.row(ranks=1, approach="ours").add("blocking", "s", [0.003, 0.001, 0.002]).add("nothing", "s", [])
    made.row(ranks=2, approach="ours").add("blocking", "s", [0.004])
    return made


def test_a_saved_report_is_loaded_as_it_was(tmp_path):
    path = tmp_path / "new" / "example.json"
    example().save(path)
    assert Report.load(path) == example()
    value = json.loads(path.read_text())["rows"][0]["values"]["blocking"]
    assert value == {"unit": "s", "median": 0.002, "min": 0.001, "max": 0.003, "samples": [0.003, 0.001, 0.002]}


def test_rows_are_found_by_any_of_their_labels():
    made = example()
    assert made.find(ranks=2) is made.rows[1]
    assert made.find(approach="ours") is made.rows[0]
    with pytest.raises(KeyError, match="example: no row with"):
        made.find(ranks=3)


def test_a_span_shows_the_median_and_the_extremes():
    first, second = example().rows
    assert span(first, "blocking", 1e3) == "2.0 (1.0..3.0)"
    assert span(second, "blocking", 1e3, 0) == "4"
    assert span(first, "nothing") == span(first, "unheard of") == "-"
    assert first.samples("nothing") == []
    with pytest.raises(KeyError):
        first.median("nothing")


def test_nothing_in_a_report_names_the_machine():
    assert set(report.machine()) == {"processor", "cores", "memory_bytes", "system", "python", "packages", "date"}


def test_the_command_line_writes_all_three_and_needs_no_second_measurement(tmp_path, capsys):
    def measure(args):
        assert args.samples == 2, "--quick"
        return example()

    def draw(made, path):
        path.write_text(made.question)

    places = ["--json", str(tmp_path / "a.json"), "--png", str(tmp_path / "figures" / "a.png")]
    report.run("example", "", measure, lambda made: made.benchmark, draw, argv=[*places, "--quick"])
    assert Report.load(tmp_path / "a.json").settings["samples"] == 2
    (tmp_path / "figures" / "a.png").unlink()
    report.run("example", "", pytest.fail, lambda made: made.benchmark, draw, argv=[*places, "--from-json"])
    assert (tmp_path / "figures" / "a.png").read_text() == "Does it work?"
    assert capsys.readouterr().out == "example\nexample\n"
