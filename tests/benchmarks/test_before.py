"""Older figures beside those of today: each line has both."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks import before, two_versions
from benchmarks.before import Quantity
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
    made = two_versions.gathered(tmp_path, 2, {"before": "abc", "now": "def"})
    once = Report.load(RESULTS / "peers.json").find(**labels).samples("durable")
    found = made.find(benchmark="peers", what="NT3, durable")
    assert found.samples("before") == once * 2
    assert found.samples("now") == once + [9.0] * 4
    lines = two_versions.tables(made).splitlines()
    assert len(lines) == 2 + len(list(two_versions.compared())) and "before, abc | now, def" in lines[0]
    for line in lines[2:]:
        earlier, now, ratio = line.removesuffix(" |").split(" | ")[-3:]
        if "NT3, durable" in line:
            assert float(ratio) > 2
        else:
            assert earlier == now and ratio in ("1.00", "-")


def runs(monkeypatch, fails=()):
    """The list of the runs that ``measure`` starts, as (tree, benchmark). Each leaves the published results; those in ``fails`` fail."""
    begun = []

    def run(command, cwd, **_):
        benchmark = command[2].removeprefix("benchmarks.")
        tree = Path(command[command.index("--tree") + 1]) if "--tree" in command else cwd
        begun.append((tree.name, benchmark))
        shutil.copy(RESULTS / f"{benchmark}.json", command[command.index("--json") + 1])
        return SimpleNamespace(returncode=3 if begun[-1] in fails else 0)

    monkeypatch.setattr(two_versions.subprocess, "run", run)
    monkeypatch.setattr(two_versions.noise, "main", lambda argv: None)
    return begun


TREES = {"before": Path("old"), "now": Path("new")}


def test_every_second_round_of_two_versions_begins_with_the_newer_one(tmp_path, monkeypatch):
    begun = runs(monkeypatch)
    two_versions.measure(TREES, 2, tmp_path)
    benchmarks = list(two_versions.BENCHMARKS)
    first = [(tree, one) for one in benchmarks for tree in ("old", "new")]
    second = [(tree, one) for one in benchmarks for tree in ("new", "old")]
    assert begun == first + second


def test_a_comparison_of_versions_that_was_ended_goes_on(tmp_path, monkeypatch):
    begun = runs(monkeypatch, fails=[("new", "peers")])
    with pytest.raises(SystemExit, match="peers of new has failed, with exit code 3"):
        two_versions.measure(TREES, 1, tmp_path)
    assert begun[-1] == ("new", "peers")
    begun = runs(monkeypatch)
    two_versions.measure(TREES, 1, tmp_path)
    assert begun[:2] == [("new", "peers"), ("old", "overhead")], (
        "what has failed is measured again, what was done is not"
    )


def test_a_version_that_lacks_a_row_is_told_at_once(tmp_path, monkeypatch):
    begun = runs(monkeypatch)
    monkeypatch.setattr(
        two_versions, "compared", lambda: [Quantity("stall", "nobody's row", {"kind": "none"}, "stall")]
    )
    with pytest.raises(SystemExit, match='stall of old has no row for "nobody\'s row"'):
        two_versions.measure(TREES, 1, tmp_path)
    assert begun == [("old", "stall")]


def test_a_comparison_needs_two_clones_that_are_set_up(tmp_path, capsys):
    for make, found in [(".venv/bin", "no .venv/bin/python"), (".venv/bin/python", "no .git"), (".git", "its commit")]:
        (tmp_path / make).mkdir(parents=True)
        with pytest.raises(SystemExit):
            two_versions.main([str(tmp_path)])
        assert found in capsys.readouterr().err
    with pytest.raises(SystemExit):
        two_versions.main([str(tmp_path), "--rounds", "0"])
    assert "expected at least 1; found 0" in capsys.readouterr().err
