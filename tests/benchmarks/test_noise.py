"""Published results are not replaced by those of a busier machine."""

from __future__ import annotations

import dataclasses
import json

import pytest

from benchmarks import noise, report
from benchmarks.noise import Noise, busier
from benchmarks.report import Report

STILL = Noise(memcpy=0.030, memcpy_slow=0.033, disk=0.020, disk_slow=0.030, others=0.01)
LOUD = Noise(memcpy=0.050, memcpy_slow=0.090, disk=0.030, disk_slow=0.100, others=1.2)


def written(path, found):
    path.write_text(json.dumps(dataclasses.asdict(found)))
    return path


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({}, []),
        ({"others": 0.10}, []),
        ({"others": 0.12}, ["others keep 0.12 cores busy; at most 0.11"]),
        ({"memcpy_slow": 0.041}, []),
        ({"memcpy_slow": 0.042}, ["memcpy: a tenth of the samples takes more than 42 ms; at most 41 ms"]),
        ({"disk_slow": 0.038}, ["disk: a tenth of the samples takes more than 38 ms; at most 38 ms"]),
        ({"memcpy": 0.01, "memcpy_slow": 0.02, "disk_slow": 0.02, "others": 0}, []),
    ],
)
def test_a_machine_is_busier_by_its_slow_samples_or_by_what_others_take(change, why):
    assert busier(dataclasses.replace(STILL, **change), STILL) == why


def test_where_nothing_is_known_of_before_the_machine_must_be_quiet():
    assert busier(STILL, None) == []
    assert len(busier(LOUD, None)) == 3
    assert busier(LOUD, LOUD) == []


def test_a_measurement_has_all_figures_and_leaves_no_file(tmp_path, monkeypatch):
    monkeypatch.setattr(noise, "COPIED", 1 << 20)
    monkeypatch.setattr(noise, "WRITTEN", 1 << 16)
    found = noise.measure(tmp_path, seconds=0)
    assert 0 < found.memcpy <= found.memcpy_slow and 0 < found.disk <= found.disk_slow and found.others >= 0
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs a benchmark whose results are published in ``tmp_path``, where it begins with a result measured in stillness."""
    monkeypatch.setattr(report, "RESULTS", tmp_path)

    def measure(args):
        return Report("example", "", {"measured": "again"})

    def run(found, *more):
        places = ["--json", str(tmp_path / "example.json"), "--png", str(tmp_path / "a.png")]
        given = ["--noise", str(written(tmp_path / "noise", found))]
        report.run("example", "", measure, str, lambda *_: None, argv=[*places, *given, *more])
        return Report.load(tmp_path / "example.json")

    Report("example", "", {"measured": "once"}, noise=dataclasses.asdict(STILL)).save(tmp_path / "example.json")
    return run


def test_a_result_holds_the_noise_it_was_measured_under(run):
    now = dataclasses.replace(STILL, others=0.05)
    found = run(now)
    assert found.settings["measured"] == "again" and found.noise == dataclasses.asdict(now)


def test_a_busier_machine_replaces_a_published_result_only_when_told(run, tmp_path):
    with pytest.raises(SystemExit, match=r"(?s)busier than.*example: others keep 1.20 cores.*--anyway"):
        run(LOUD)
    assert Report.load(tmp_path / "example.json").settings == {"measured": "once"}
    assert run(LOUD, "--anyway").settings["measured"] == "again"


def test_figures_of_another_machine_are_no_measure_of_noise(run, tmp_path):
    path = tmp_path / "example.json"
    kept = json.loads(path.read_text())
    path.write_text(json.dumps({**kept, "machine": {**kept["machine"], "cores": 999}}))
    slower = Noise(memcpy=0.060, memcpy_slow=0.066, disk=0.040, disk_slow=0.060, others=0.01)
    assert busier(slower, STILL)
    assert run(slower).settings["measured"] == "again"


def test_all_results_are_asked_at_once_before_anything_is_measured(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(noise, "measure", lambda folder, seconds: LOUD)
    for name, found in (("still", STILL), ("loud", LOUD)):
        Report(name, "", noise=dataclasses.asdict(found)).save(tmp_path / f"{name}.json")
    paths = [str(tmp_path / f"{name}.json") for name in ("still", "loud", "never")]
    out = tmp_path / "new" / "noise.json"
    with pytest.raises(SystemExit) as refused:
        noise.main(["--json", str(out), "--replaces", *paths])
    assert "still:" in refused.value.code and "loud:" not in refused.value.code
    assert noise.load(out) == LOUD and "others keep 1.20 cores" in capsys.readouterr().out


def test_a_quick_run_takes_the_place_of_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "QUICK", tmp_path)
    report.run("example", "", lambda args: Report("example", ""), str, lambda *_: None, argv=["--quick"])
    assert Report.load(tmp_path / "example.json").noise is None
