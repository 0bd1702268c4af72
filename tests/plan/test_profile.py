"""Profiles and plans of a step as files: whatever is written is read again, and anything else is refused by name."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from deepfreeze.errors import CorruptError, NewerError, OptionError, RunError
from deepfreeze.format.sealed_json import seal
from deepfreeze.plan.step.baselines import CHECKFREQ, GREEDY, SYNCHRONOUS, UPDATE, baselines
from deepfreeze.plan.step.profile import StepProfile
from deepfreeze.plan.step.step_plan_file import StepPlanFile
from tests.support.step_profiles import MEGABYTE, plan, profile


def test_a_profile_and_a_plan_are_read_as_they_were_written(tmp_path):
    made = profile()
    made.save(tmp_path / "profile.json")
    assert StepProfile.load(tmp_path / "profile.json") == made
    for options in ({}, {"memory": 10**9, "every": 2}, {"cyclic": False, "direct": True}):
        of = plan(made, **options)
        file = StepPlanFile.of(made, of, baselines(of.question, [10] * len(of.question.tensors)))
        assert StepPlanFile.from_bytes(file.to_bytes(), "plan") == file
        file.check(made, "plan")


def test_the_hash_says_which_question_is_answered():
    made = profile()
    names = {
        StepPlanFile.of(made, plan(made, **options), []).file_name for options in ({}, {"every": 2}, {"memory": 10**9})
    }
    names |= {
        StepPlanFile.of(other, plan(other), []).file_name
        for other in (replace(made, name="other"), replace(made, world_size=4))
    }
    assert len(names) == 5
    assert StepPlanFile.of(made, plan(made), []).file_name in names


def broken(**changes: object) -> dict:
    return {**json.loads(json.dumps(profile().to_json())), **changes}


def with_window(number: int, **changes: object) -> dict:
    value = broken()
    value["windows"][number].update(changes)
    return value


def with_tensor(number: int, **changes: object) -> dict:
    value = broken()
    value["tensors"][number].update(changes)
    return value


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (broken(windows=[]), "from 1 to 1024 windows"),
        (broken(tensors=[]), "from 1 to 100000 tensors"),
        (with_window(3, seconds=-0.05), "windows[3].seconds"),
        (
            with_window(3, begin=0.2),
            "windows[3] to begin where the one before it ends, at 0.15 s; found a begin at 0.2 s",
        ),
        (broken(windows=[*broken()["windows"][:3], *broken()["windows"][4:]]), "windows[3] to begin where"),
        (with_window(3, shortest=0.06), "windows[3].shortest"),
        (with_window(3, busy=1.5), "windows[3].busy"),
        (with_window(3, phase="sleep"), "windows[3].phase to be one of forward, backward, update, between"),
        (with_window(3, extra=1), "windows[3].keys"),
        (with_tensor(1, update=20), "tensors[1].update to be an integer from 0 to 19"),
        (with_tensor(1, name="dense_0"), "a name for each tensor; found dense_0 twice"),
        (with_tensor(1, nbytes=0), "tensors[1].nbytes"),
        (broken(structure="abc"), "structure to be 64 lower-case"),
    ],
)
def test_a_profile_that_can_not_be_is_refused_by_name(value, said):
    with pytest.raises(CorruptError) as raised:
        StepProfile.from_json(value, "p.json")
    assert said in str(raised.value) and str(raised.value).startswith("p.json: ")


def test_a_missing_or_newer_profile_is_an_error(tmp_path):
    with pytest.raises(RunError, match="expected a step's profile; found No such file"):
        StepProfile.load(tmp_path / "none.json")
    with pytest.raises(NewerError):
        StepProfile.from_json(broken(format=2))


def test_a_plan_that_breaks_a_rule_is_damaged():
    made = profile()
    file = StepPlanFile.of(made, plan(made), [])
    content = json.loads(file.to_bytes())
    del content["crc32c"]
    content["baselines"] = [{"name": "none", "extra": 0, "stall": 0.0, "end": None}]
    content["parts"][0]["write"] = content["parts"][0]["copy"]
    with pytest.raises(
        CorruptError,
        match="a plan that keeps the rules of its question; found metrics, from byte 0 on: written in window -1, copied in -1",
    ):
        StepPlanFile.from_bytes(seal(json.dumps(content).removesuffix("}")), "plan")


def test_a_plan_of_something_else_says_so():
    made = profile()
    file = StepPlanFile.of(made, plan(made), [])
    for other, said in (
        (replace(made, structure="1" * 64), "a plan for these tensors"),
        (replace(made, world_size=4), r"a plan for this number of ranks \(4\); found one for others \(2\)"),
        (replace(made, windows=profile(seconds=0.06).windows), "a plan for this step and store"),
    ):
        with pytest.raises(OptionError, match=f"{said}.*Plan anew"):
            file.check(other, "plan")


def test_a_step_that_changes_by_the_batch_is_planned_with_short_windows():
    made = profile()
    unsteady = replace(made, spread=0.6)
    assert made.is_steady and not unsteady.is_steady
    assert made.question().windows[0].capacity == 50 * MEGABYTE
    assert unsteady.question().windows[0].capacity == 45 * MEGABYTE
    assert made.question(faster=0.5).windows[0].capacity == 25 * MEGABYTE


def test_the_baselines_are_what_they_are_called():
    asked = profile().question(at_least=2 * MEGABYTE)
    found = {one.name: one for one in baselines(asked, [20] * len(asked.tensors))}
    assert list(found) == [UPDATE, GREEDY, CHECKFREQ, SYNCHRONOUS]
    assert found[SYNCHRONOUS].extra == 0 and found[SYNCHRONOUS].stall == pytest.approx(0.6)
    assert found[CHECKFREQ].extra == 600 * MEGABYTE and found[CHECKFREQ].stall == 0
    assert found[GREEDY].extra < found[UPDATE].extra < 600 * MEGABYTE
    slow = profile().question(faster=0.5)
    found = {one.name: one for one in baselines(slow, [20] * len(slow.tensors))}
    assert found[GREEDY].extra is None and found[UPDATE].extra == 1200 * MEGABYTE
    assert found[CHECKFREQ].stall == found[UPDATE].stall == pytest.approx(0.2)
