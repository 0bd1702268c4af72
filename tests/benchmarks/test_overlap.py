"""The benchmark of overlap puts groups of its own into the library's capture: they are still the ones that capture."""

from __future__ import annotations

import argparse

import pytest

from benchmarks import overlap
from benchmarks.report import Report
from tests.support import kerases


@pytest.mark.full
@pytest.mark.tensorflow
@pytest.mark.ranks
@kerases.needs_keras_3
def test_overlap_is_measured_on_each_rank(tmp_path):
    overlap.measure(argparse.Namespace(quick=True, folder=tmp_path)).save(tmp_path / "overlap.json")
    report = Report.load(tmp_path / "overlap.json")
    assert [row.labels["rank"] for row in report.rows] == list(range(overlap.RANKS))
    for row in report.rows:
        top, bottom = row.samples("top"), row.samples("bottom")
        assert len(top) == len(bottom) == row.labels["rounds"]
        assert min(*top, *bottom) > 0, "seconds since the step began"
    assert overlap.tables(report).count("\n") == 1 + overlap.RANKS
    overlap.draw(report, tmp_path / "overlap.png")
    assert (tmp_path / "overlap.png").read_bytes().startswith(b"\x89PNG")
