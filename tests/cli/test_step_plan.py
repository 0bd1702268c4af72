"""``deepfreeze plan RUN --schedule``: the plan of a step that is kept, plans made anew, the picture, and what can't be."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import pytest

from deepfreeze.cli.main import main
from deepfreeze.plan.step.baselines import baselines
from deepfreeze.plan.step.step_plan_file import StepPlanFile
from deepfreeze.store import step_plans
from deepfreeze.store.run import Run
from deepfreeze.store.step_plans import StepSection
from tests.support import files
from tests.support.step_profiles import MEGABYTE, plan, profile

MADE = profile()


@pytest.fixture
def run(tmp_path):
    """A run whose step has a profile and a plan."""
    path = files.write_run(tmp_path / "nt3")
    opened, of = Run.open(path), plan(MADE)
    file = StepPlanFile.of(MADE, of, baselines(of.question, [10] * len(of.question.tensors)))
    step_plans.put(opened, file.file_name, file.to_bytes())
    step_plans.put_profile(opened, StepSection(MADE.to_json(), file.file_name))
    return path


def test_the_plan_that_is_kept_is_shown(run, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "highspy", None)  # not needed for it
    assert main(["plan", str(run), "--schedule"]) == 0
    lines = capsys.readouterr().out.replace(str(run), "RUN").splitlines()
    facts = dict(line.split("  ", 1) for line in lines[: lines.index("")])
    assert facts["of"].strip() == "RUN" and "1 s in 20 windows, on 2 ranks" in facts["step"]
    assert "600 MB a rank" in facts["saved"] and "every 1 step" in facts["saved"]
    assert "of the checkpoint" in facts["extra memory"] and "60% of it is used" in facts["store"]
    names = [line.split("  ")[0] for line in lines]
    assert {"at the update", "greedy", "CheckFreq", "synchronous"} <= set(names)
    assert len(lines) - lines.index("", lines.index("") + 1) == 22, "a head, and a line for each window"


def test_json_has_the_whole_plan(run, capsys):
    assert main(["plan", str(run), "--schedule", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    of = plan(MADE)
    assert (found["nbytes"], found["extra"], found["peak"]) == (600 * MEGABYTE, of.extra, of.peak)
    assert len(found["parts"]) == len(of.parts) and found["profile"] == MADE.hash


def test_a_plan_is_made_anew_under_other_conditions(run, capsys):
    assert main(["plan", str(run), "--json", "--what-if", "memory=400MB", "rate=2"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["memory"] == 400 * MEGABYTE and found["peak"] <= 400 * MEGABYTE
    assert found["share_of_rate"] == pytest.approx(0.3)
    assert main(["plan", str(run), "--json", "--what-if", "every=2", "--what-if", "direct=yes"]) == 0
    assert json.loads(capsys.readouterr().out)["every"] == 2


def test_a_plan_made_anew_keeps_the_training_s_other_conditions(run, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "highspy", None)  # the greedy plan does
    opened = Run.open(run)
    kept = replace(step_plans.read_profile(opened), plan=None, every=2, memory=500 * MEGABYTE, blocks=8 * MEGABYTE)
    step_plans.put_profile(opened, kept)
    assert main(["plan", str(run), "--schedule", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["every"], found["memory"]) == (2, 492 * MEGABYTE)
    assert main(["plan", str(run), "--what-if", "memory=400MB"]) == 0
    out = capsys.readouterr().out
    assert "every 2 steps" in out and "at most 392 MB of copies" in out


def test_what_can_not_be_is_answered_with_numbers(run, capsys):
    assert main(["plan", str(run), "--what-if", "rate=0.5"]) == 1
    said = capsys.readouterr().err
    assert "the store takes 500 MB in a step, of the 600 MB" in said and "every=2" in said and "times as fast" in said
    assert main(["plan", str(run), "--what-if", "memory=1kB"]) == 1
    assert "the largest part" in capsys.readouterr().err


def test_a_run_may_come_behind_the_conditions(run, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "highspy", None)  # the greedy plan does
    conditions = ["--what-if", "every=2", "rate=2"]
    named = tmp_path / "lr=0.1"
    named.symlink_to(run)
    assert main(["plan", "--json", *conditions, str(named)]) == 0
    assert json.loads(capsys.readouterr().out)["every"] == 2
    for wrong in ([str(run), *conditions, "once"], [*conditions, "once", str(run)], ["--what-if", str(run)]):
        with pytest.raises(SystemExit) as ended:
            main(["plan", *wrong])
        assert ended.value.code == 2 and "is none of memory=SIZE, every=STEPS" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["memory", "memory=much", "every=0", "every=x", "rate=-1", "direct=maybe", "size=3"])
def test_a_wrong_condition_is_refused(run, capsys, text):
    with pytest.raises(SystemExit) as ended:
        main(["plan", str(run), "--what-if", text])
    assert ended.value.code == 2 and text in capsys.readouterr().err


def test_without_highs_the_greedy_plan_is_shown(run, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "highspy", None)
    assert main(["plan", str(run), "--what-if", "every=2", "--json"]) == 0
    said = capsys.readouterr()
    assert 'pip install "deepfreeze[plan]"' in said.err and "greedy" in said.err
    found = json.loads(said.out)
    assert found["every"] == 2 and found["peak"] == found["greedy"] and not found["is_best"]
    assert main(["plan", str(run), "--what-if", "rate=0.5"]) == 1
    assert 'pip install "deepfreeze[plan]"' in capsys.readouterr().err


def test_a_picture_is_drawn(run, tmp_path, capsys):
    assert main(["plan", str(run), "--schedule", "--plot", str(tmp_path / "step.png")]) == 0
    assert (tmp_path / "step.png").read_bytes().startswith(b"\x89PNG")
    assert "the plan of a step" in capsys.readouterr().out


def test_a_profile_from_elsewhere_is_planned_without_a_run(tmp_path, capsys):
    MADE.save(tmp_path / "gpu.json")
    assert main(["plan", "--profile", str(tmp_path / "gpu.json"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["nbytes"] == 600 * MEGABYTE
    assert main(["plan", "--profile", str(tmp_path / "none.json")]) == 1
    assert "none.json" in capsys.readouterr().err
    profile = ["--profile", str(tmp_path / "gpu.json")]
    for wrong, found in (
        ([], "is missing"),
        ([str(tmp_path), *profile], "not both"),
        ([*profile, "--explain"], "has no sentences"),
    ):
        with pytest.raises(SystemExit):
            main(["plan", *wrong])
        assert found in capsys.readouterr().err


def test_a_store_that_takes_nothing_has_no_plan(tmp_path, capsys):
    profile(rate=0.0).save(tmp_path / "gpu.json")
    assert main(["plan", "--profile", str(tmp_path / "gpu.json")]) == 1
    assert "the store takes 0 B in a step, of the 600 MB" in capsys.readouterr().err
    MADE.save(tmp_path / "gpu.json")
    assert main(["plan", "--profile", str(tmp_path / "gpu.json"), "--what-if", "every=10000"]) == 1
    assert "counts of parts" in capsys.readouterr().err


def test_a_run_without_a_profile_says_how_to_get_one(tmp_path, capsys):
    path = files.write_run(tmp_path / "nt3")
    assert main(["plan", str(path), "--schedule"]) == 1
    assert "Capture(profile=True)" in capsys.readouterr().out
    assert main(["plan", str(path), "--schedule", "--json"]) == 1
    assert capsys.readouterr().out == "null\n"


def test_a_plan_of_another_profile_is_refused(run, capsys):
    opened = Run.open(run)
    kept = step_plans.read_profile(opened)
    empty = profile(windows=10, seconds=0.1).to_json() | {"tensors": MADE.to_json()["tensors"][:0]}
    step_plans.put_profile(opened, replace(kept, profile=empty))
    assert main(["plan", str(run), "--schedule"]) == 1
    step_plans.put_profile(opened, replace(kept, profile=profile(rate=2e9).to_json()))
    assert main(["plan", str(run), "--schedule"]) == 1
    assert "Plan anew" in capsys.readouterr().err
