"""What a kill has lost is read from what the training has written before it."""

from __future__ import annotations

import argparse

import pytest

from benchmarks import goals, recovery
from benchmarks.recovery_kills import Loss, Outcome, Plan, loss, newest
from benchmarks.recovery_life import PHASES, Life, marks
from benchmarks.report import Report

WRITTEN = "imported 12.5 0\nbuilt 13.0 0\nrestored 13.25 40\nstep 15.0 41\nstep 15.5 42\nstep 16.0 43\n"
LIFE = Life(started=10.0, killed=16.25, marks=marks(WRITTEN))
PLAN = Plan("resnet50", every=5, epoch=20, kills=2)


def outcome(worst: int) -> Outcome:
    lost = {"steps": [Loss(1, 0.5), Loss(worst, 2.0)], "epoch": [Loss(8, 4.0), Loss(19, 9.5)]}
    return Outcome(lost, {policy: [dict.fromkeys(PHASES, 1.0)] for policy in lost}, [0.5])


def report(worst: int) -> Report:
    made = Report("recovery", "What does a kill cost?")
    recovery.add(made, PLAN, outcome(worst))
    return made


def test_a_restart_ends_with_its_first_new_step():
    assert LIFE.restart() == {"process start": 2.5, "model": 0.5, "restore": 0.25, "first step": 1.75}
    assert LIFE.resumed == 40 and LIFE.seconds == [0.5, 0.5], "the first step is traced, so it doesn't count"


def test_lost_work_is_the_finished_steps_and_the_one_under_way():
    assert loss(LIFE, 40, 0.5) == Loss(3, 1.75)
    assert loss(LIFE, 43, 0.5) == Loss(0, 0.25)


def test_an_epoch_policy_would_have_the_newest_epochs_end_alone():
    assert newest([15, 20, 25, 30]) == 30
    assert newest([15, 20, 25, 30], multiple_of=20) == 20
    assert newest([15], multiple_of=20) == 0, "it begins anew"


@pytest.mark.parametrize(("worst", "reached"), [(10, True), (11, False)])
def test_a_kill_that_loses_more_than_two_intervals_misses_the_goal(worst, reached):
    (found,) = goals._recovery(report(worst))
    assert found.reached is reached and found.found == f"{worst} of 10 steps at worst, 2 kills"
    assert [one.verdict for one in goals._recovery(None)] == ["-"]


def test_recoveries_stand_beside_the_papers():
    shown = recovery.tables(report(9))
    assert "| resnet50 | every 5 steps | 2 | 500 | 5.0 (9) | 10 | 0.90x | 1.2 (2.0) |" in shown
    assert "| resnet50, epochs of 20 steps | 10.8 | 5.2 | 2.0x |" in shown
    assert "| CheckFreq, Table 6a: ResNet50 on 1 V100, epochs of ImageNet | 2100 | 24 | 87.5x |" in shown


@pytest.mark.tensorflow
@pytest.mark.full
def test_a_training_that_is_killed_is_measured_from_end_to_end(tmp_path, monkeypatch):
    monkeypatch.setattr(recovery, "QUICK", (Plan("light", 3, 6, 2),))
    made = recovery.measure(argparse.Namespace(quick=True, folder=tmp_path, workloads=[]))
    for row in made.rows:
        assert len(row.samples("lost steps")) == 2 and len(row.samples("restart")) == 1
    assert max(made.find(policy="steps").samples("lost steps")) <= 6
    assert "light, epochs of 6 steps" in recovery.tables(made)
    recovery.draw(made, tmp_path / "recovery.png")
    assert (tmp_path / "recovery.png").read_bytes().startswith(b"\x89PNG")
    assert not [path for path in tmp_path.iterdir() if path.is_dir()], "what it saved is gone"
