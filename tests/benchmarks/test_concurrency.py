"""Several checkpoints at once: what is compared is of one round, the parts that were measured are shown, and a late store is late."""

from __future__ import annotations

import argparse
import re
import types
from pathlib import Path

import pytest

from benchmarks import (
    concurrency,
    concurrency_every_step,
    concurrency_in_flight,
    concurrency_memory,
    concurrency_store,
    concurrency_time,
    concurrency_writers,
    goals,
    jobs,
    pccheck_published,
)
from benchmarks.ranks import Ranks
from benchmarks.report import Report, Row, of_part

ROUNDS = (4.0, 2.0, 4.0)  # of which one is slower


def report(**parts: list[Row]) -> Report:
    made = Report("concurrency", "What does it cost?")
    for name, rows in parts.items():
        for row in rows:
            row.labels["part"] = name.replace("_", "-")
        made.rows += rows
    return made


def rate(times: float, **labels: object) -> Row:
    """``times`` the rates of all rounds."""
    return Row(labels).add("rate", "1/s", [times * one for one in ROUNDS])


def memory(times: float, peak: float) -> list[Row]:
    """``times``: the rate with 1.25 shards over that with 2; ``peak``: with 2 shards, of the memory given."""
    rows = []
    for shards, of, most in ((1.25, times, 0.5), (2.0, 1.0, peak)):
        labels = {"workload": "light", "every": 10, "memory": shards, "nbytes": int(shards * 1000), "shard": 1000}
        row = rate(of, **labels, samples=50, chunk=concurrency_memory.CHUNK)
        rows.append(row.add("peak", "B", [most * shards * 1000]))
    return rows


def store(times: float) -> list[Row]:
    """``times``: the rate with four transfers over that with one."""
    of = {(1, 1): 0.5, (4, 1): 1.0, (4, 2): 1.5, (4, 4): times}
    return [rate(of[one], checkpoints=one[0], transfers=one[1]) for one in concurrency_store.SETTINGS]


def every_step(times: float) -> list[Row]:
    """``times``: of the disk's rate, with one transfer. The disk becomes slower from sample to sample."""
    disk = [8e9, 6e9, 4e9, 2e9]
    saved = [times * 7e9, 1e9, times * 3e9]
    found = {"order": [1, 2, 1], "saved": saved, "disk": disk, "superseded": [0, 3, 0]}
    return [concurrency_every_step.row_of(found, many) for many in (1, 2)]


def others() -> dict[str, list[Row]]:
    """The parts without goals."""
    time = Row({"nbytes": 25_000_000}).add("ratio", "", [1.5, 1.7, 1.6])
    for way, seconds in zip(concurrency_time.WAYS, (0.1, 0.16), strict=True):
        time.add(way, "s", [seconds])
    schemes = Row({"checkpoints": 2, "memory": None, "nbytes": 1000, "kept": 1, "samples": 9, "looks": 9})
    plain = rate(3.0, every=None, checkpoints=0)
    kinds = [(every, many) for every in (1, 10) for many in (1, 2)]
    return {
        "time": [time],
        "in_flight": [plain, *(rate(3 / (1 + many / every), every=every, checkpoints=many) for every, many in kinds)],
        "writers": [rate(of, checkpoints=2, writers=writers) for writers, of in ((1, 1.0), (3, 1.25))],
        "schemes": [schemes.add("peak", "B", [2030]).add("stored", "B", [4000])],
    }


@pytest.mark.parametrize(("times", "peak", "reached"), [(0.95, 1.0, [True, True]), (0.92, 1.01, [False, False])])
def test_rates_are_compared_with_those_of_the_same_round(times, peak, reached):
    made = report(memory=memory(times, peak))
    rows = of_part(made, "memory")
    assert concurrency_memory.compared(rows, rows[0]) == pytest.approx([times] * 3)
    assert (
        f"| light | 10 | 1.25 | 4 | 0 | 0 | {4 * times:.2f} | {times:.3f} ({times:.3f}..{times:.3f}) |"
        in concurrency.tables(made)
    )
    found = goals._concurrency(made)
    assert [one.reached for one in found[:2]] == reached and all(one.sure for one in found[:2])
    assert [one.verdict for one in goals._concurrency(None)] == ["-"] * 4
    assert [one.verdict for one in found[2:]] == ["-"] * 2, "parts that were not measured"


@pytest.mark.parametrize(("times", "reached"), [(2.1, True), (1.9, False)])
def test_transfers_at_once_are_to_double_the_rate_of_a_late_store(times, reached):
    made = report(memory=memory(1, 1), store=store(times))
    assert f"| 4 | 4 | {4 * times:.2f} (" in concurrency.tables(made)
    found = goals._concurrency(made)[2]
    assert found.reached is reached and found.sure and found.found == f"{times:.2f} ({times:.2f}..{times:.2f})"


@pytest.mark.parametrize(("times", "reached"), [(0.95, True), (0.85, False)])
def test_a_training_is_compared_with_the_disk_before_and_after_it(times, reached):
    rows = every_step(times)
    assert [row.samples("disk") for row in rows] == [[7e9, 3e9], [5e9]]
    assert rows[0].samples("ratio") == pytest.approx([times] * 2) and rows[1].labels["superseded"] == 3
    made = report(every_step=rows)
    assert f"| {times:.2f} ({times:.2f}..{times:.2f}) | 0 |" in concurrency.tables(made)
    found = goals._concurrency(made)[3]
    assert found.reached is reached and found.sure and found.found.endswith("of 5.00 GB/s)")


def test_the_papers_figures_stand_beside_ours():
    shown = concurrency.tables(report(**others()))
    assert "| 25 | 100 | 160 | 1.60 (1.50..1.70) |" in shown
    assert "| PCcheck over CheckFreq and GPM | - | - | 1.9 at most |" in shown
    assert "| 1 | 2.00 (2.00..2.00) | 1.10 (1.10..1.10) |" in shown, "the slowdowns of N = 1"
    assert "| CheckFreq, VGG16 | 10 | 5.74 |" in shown
    assert "| 2 | 3 | 5.00 (2.50..5.00) | 1.25 (1.25..1.25) | 1.16 |" in shown
    assert "| DeepFreeze, N = 2 | 2 m | 2.03 m | (1 + 2) m = 3 m | 4.00 m |" in shown
    assert "| PCcheck | CPU: m to 2 m | - | (N + 1) m | - |" in shown
    assert "Memory for captures" not in shown, "it was not measured"
    assert concurrency_writers.SOURCE == "Figure 13" and pccheck_published.numbers("Figure 13") == [1.36, 1.16, 1.13]
    with pytest.raises(KeyError, match="Figure 99"):
        pccheck_published.lines("Figure 99")


def test_the_figure_has_a_panel_for_each_part_that_was_measured(tmp_path):
    for name, parts in (("all.png", {"memory": memory(1, 1), **others()}), ("one.png", {"memory": memory(1, 1)})):
        concurrency.draw(report(**parts), tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


def test_parts_that_are_not_measured_again_stay(tmp_path, monkeypatch):
    def part(name: str) -> types.ModuleType:
        made = types.ModuleType(name)
        made.measure = lambda quick, disk: [Row({"of": name})]  # type: ignore[attr-defined]
        return made

    monkeypatch.setattr(concurrency, "PARTS", {name: part(name) for name in ("memory", "store")})
    args = argparse.Namespace(quick=True, folder=tmp_path, json=tmp_path / "found.json", parts=["memory", "store"])
    first = concurrency.measure(args)
    first.rows[0].labels["of"] = "before"
    first.settings["dates"] = dict.fromkeys(args.parts, "2026-01-01")
    first.save(args.json)
    args.parts = ["store"]
    made = concurrency.measure(args)
    assert [row.labels for row in made.rows] == [{"part": "memory", "of": "before"}, {"part": "store", "of": "store"}]
    assert made.settings["dates"] == {"memory": "2026-01-01", "store": made.machine["date"]}
    first.machine["cores"] = 1000
    first.save(args.json)
    with pytest.raises(SystemExit, match="another machine"):
        concurrency.measure(args)


def test_slowdowns_are_those_of_the_training_without_checkpoints():
    rows = others()["in_flight"]
    assert concurrency_in_flight.slowdown(rows, rows[1]) == pytest.approx([2.0] * 3)


def test_every_call_on_the_late_store_waits_and_two_checkpoints_stay(tmp_path, monkeypatch, testing_library):
    monkeypatch.setenv("DEEPFREEZE_FAULT_LOG", str(tmp_path / "log"))
    place = jobs.empty(tmp_path, concurrency_store.SLOW)
    with Ranks(1, 8192, program="concurrency_engine") as ranks:
        ranks.ask("slow", library=testing_library, milliseconds=1, part=concurrency_store.SLOW)
        engine = ranks.open([[(8192, 0)]], place, None, in_flight=2, uncommitted=2, transfers=2)
        assert engine.pace(1, 1, 2)[0] > 0
        seconds, left = engine.pace(1, 1, 2)
        assert seconds > 0 and left >= 2, "the steps go on"
        names = sorted(path.name for path in Path(engine.run).glob("*step*"))
    assert names == ["step-0000000007", "step-0000000008"]
    waited = set(re.findall(r"^delay=1 (\w+) ", (tmp_path / "log").read_text(), re.MULTILINE))
    assert {"open", "pwrite", "fdatasync", "rename", "unlink"} <= waited and "clock" not in waited


def test_without_the_tests_engine_there_is_no_late_store(tmp_path, monkeypatch):
    monkeypatch.setattr(concurrency_store, "LIBRARY", tmp_path / "none.so")
    with pytest.raises(SystemExit, match="make setup"):
        concurrency_store.measure(True, tmp_path)
