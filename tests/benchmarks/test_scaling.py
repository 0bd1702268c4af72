"""The scaling benchmark: its rank processes, its fit, and all of it at small sizes."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path

import pytest

from benchmarks import scaling, scaling_figure, scaling_series
from benchmarks.ranks import OPERATIONS, Ranks, footprint, scratch, tracing
from benchmarks.report import ROOT, Report, Row
from benchmarks.scaling_figure import growth
from tests.support import processes

SMALL = dataclasses.replace(
    scaling_series.QUICK,
    nbytes=(100_000, 1_000_000),
    tensors=(10, 100),
    tensor_bytes=1_000_000,
    ranks=(1, 2),
    planned=(1, 8),
    burst_bytes=1_000_000,
    fixed_bytes=1_000_000,
    chunks=(256 * 1024, 1 << 20),
)


def measured(points: dict[float, list[float]]) -> list[Row]:
    return [Row({"x": x}).add("time", "s", samples) for x, samples in points.items()]


@pytest.mark.parametrize("power", [0.5, 1.0, -1.0])
def test_the_exponent_is_the_slope_over_the_upper_half(power):
    upper = {x: [3 * x**power] for x in (100, 300, 1000)}
    assert growth(measured(upper), "time") == pytest.approx(power)
    assert growth(measured({1: [50.0], 3: [50.0], **upper}), "time") == pytest.approx(power), (
        "the lower half is left out"
    )
    assert growth(measured({1: [1.0], 900: [900**power], 1000: [1000**power]}), "time") == pytest.approx(power)


@pytest.mark.parametrize("points", [{}, {10: [2.0]}, {10: [2.0], 1000: []}, {10: [2.0, 4.0], 1000: [3.9, 9.0]}])
def test_there_is_no_exponent_of_one_point_or_of_noise(points):
    assert growth(measured(points), "time") is None


@pytest.mark.parametrize("world", [1, 3])
def test_the_shards_of_all_ranks_cover_the_file_once(world):
    tensors = scaling_series.specs("resnet50")
    shards = scaling_series.placed(tensors, world)
    end = 0
    for offset, nbytes in sorted((offset, nbytes) for regions in shards for nbytes, offset in regions):
        assert offset == end
        end += nbytes
    assert sum(spec.nbytes for spec in tensors) <= end < sum(spec.nbytes + 4096 for spec in tensors)
    assert all(regions == sorted(regions, key=lambda region: region[1]) for regions in shards)


def test_rank_processes_save_in_step_and_leave_nothing(tmp_path, library):
    shards = [[(100_000, 0), (51_552, 100_000)], [(49_999, 151_552)]]
    assert footprint(shards[0]) == 102_400 + 53_248
    with scratch(tmp_path) as (disk, local):
        with Ranks(2, footprint(shards[0])) as ranks:
            job = ranks.open(shards, disk, local, slots=1, chunk_bytes=65536)
            saved = job.save()
            assert saved.nbytes == [151_552, 49_999]
            assert 0 < saved.written[0] <= saved.committed and len(saved.cpu) == 2
            assert [path.name for path in job.run.iterdir()] == ["step-0000000001"]
            burst = job.burst(3)
            assert burst.nbytes == [454_656, 149_997] and [len(waits) for waits in burst.submits] == [3, 3]
            assert [path.name for path in job.run.iterdir()] == ["step-0000000004"]
            job.close()
            assert not list(disk.iterdir())
            with pytest.raises(SystemExit, match=r"rank process 0 of 2: the regions take 311296 bytes; there are"):
                ranks.open([[(100_000, 0), (50_000, 100_000)] * 2, shards[1]], disk, local)
        assert not list(Path(local).rglob("*.slot"))
    assert not list(tmp_path.iterdir()) and not local.exists()


def test_a_checkpoint_that_fails_ends_the_benchmark_with_its_message(tmp_path, library, monkeypatch):
    monkeypatch.setenv("DEEPFREEZE_FAULT", "fail=EIO:fdatasync:model.weights.h5:1+")
    with scratch(tmp_path) as (disk, local), Ranks(1, 4096) as ranks:
        job = ranks.open([[(4096, 0)]], disk, local)
        with pytest.raises(SystemExit, match=r"rank process 0 of 1: .*fdatasync"):
            job.save()


@pytest.mark.skipif(bool(tracing()), reason=tracing())
def test_operations_on_the_run_directory_are_counted_and_no_others(tmp_path, library):
    with scratch(tmp_path) as (disk, local), Ranks(1, 4096, traced=True) as ranks:
        job = ranks.open([[(4096, 0)]], disk, local)
        job.save()
        first, second = job.operations(1)[0], job.operations(2)[0]
        assert set(first) == set(OPERATIONS)
        # One directory, renamed once; its three files are written under other names or none.
        assert first["mkdir"] == 1 and 2 <= first["rename"] <= 5
        assert second["mkdir"] == 2 and second["rename"] == 2 * first["rename"]


@pytest.mark.full
@pytest.mark.slow
def test_all_of_it_at_small_sizes(tmp_path, library, monkeypatch):
    monkeypatch.setattr(scaling, "QUICK", SMALL)
    tensors = scaling_series.specs("resnet50")[:60]
    monkeypatch.setattr(scaling_series, "specs", lambda workload: tensors)
    report = scaling.measure(argparse.Namespace(quick=True, samples=2, folder=tmp_path, only=None))
    assert not list(tmp_path.iterdir())
    report.save(tmp_path / "scaling.json")
    report = Report.load(tmp_path / "scaling.json")
    assert {row.labels["series"] for row in report.rows} - {"operations"} == set(scaling_series.SERIES)
    shown = scaling.tables(report)
    assert "| exponent |" in shown and "1 MB in more regions" in shown
    scaling.draw(report, tmp_path / "scaling.png")
    assert (tmp_path / "scaling.png").read_bytes().startswith(b"\x89PNG")


def test_a_series_that_was_not_measured_is_left_out(tmp_path):
    report = Report("scaling", "", {**dataclasses.asdict(SMALL)})
    for x in (1, 8, 64):
        report.row(series="plan", x=x).add("plan", "s", [0.001 * x]).add("bytes", "B", [64 / x])
    assert scaling_figure.tables(report).count("**") == 2
    scaling_figure.draw(report, tmp_path / "one.png")


def test_what_the_machine_has_no_room_for_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(scaling_series, "room", lambda *folders: 10)
    bench = scaling_series.Bench(Report("scaling", ""), SMALL, 1, tmp_path, tmp_path)
    assert scaling_series.affordable(bench, "bytes", (2, 3, 9), lambda kept: max(kept) + sum(kept)) == [2, 3]
    assert bench.report.settings["left out"] == {"bytes": [9]}
    with pytest.raises(SystemExit, match="too little memory"):
        scaling_series.affordable(bench, "bytes", (11,), max)


def test_make_bench_refuses_a_machine_without_room(tmp_path):
    script = (
        "import sys; sys.path.insert(0, 'tools'); import bench, project\n"
        "bench.NEEDED = 1 << 60\n"
        "sys.argv = ['bench', '--folder', sys.argv[1]]\n"
        "project.main(bench.bench)\n"
    )
    done = processes.run([sys.executable, "-c", script, tmp_path], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "GB of disk" in done.stderr and "--folder DIR" in done.stderr and "Traceback" not in done.stderr
