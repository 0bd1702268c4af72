"""The step's profile on Horovod ranks: one profile and one plan for all of them, of the slowest rank."""

import pytest

from deepfreeze.plan.step.profile import StepProfile
from deepfreeze.plan.step.step_plan_file import StepPlanFile
from deepfreeze.store import step_plans
from deepfreeze.store.run import Run

pytestmark = [pytest.mark.ranks, pytest.mark.tensorflow]
LATE = 0.01  # seconds by which rank 1 is slower, in its forward pass


@pytest.mark.full
def test_the_profile_of_two_ranks_is_that_of_the_slower_one(two, tmp_path):
    first, second = two.run("profiled", folder=tmp_path, every=2, slower={"1": LATE})
    assert first["steps"] == second["steps"] and not second["messages"]
    run = Run.open(tmp_path / "run")
    found = step_plans.read_profile(run)
    profile, name = StepProfile.from_json(found.profile), found.plan
    assert profile.world_size == 2
    # Of each tensor the larger half that a rank has; a rank's metrics and the optimizer's counters are whole.
    assert 0.5 <= profile.nbytes / first["nbytes"] < 0.55
    assert sum(window.seconds for window in profile.windows if window.phase == "forward") >= LATE
    file = StepPlanFile.from_bytes(*step_plans.read(run, name))
    file.check(profile, name)
    assert file.plan.question.every == 2
    assert any("a planned step would hold" in message for message in first["messages"])


@pytest.mark.full
def test_ranks_profile_the_same_steps_though_one_of_them_fails_to_save(two, tmp_path):
    """Rank 0 can't hand one of the first marked checkpoints over. It ends its profile after the same step as rank 1 all the same."""
    first, second = two.run("profiled", folder=tmp_path, every=2, fails=10)
    assert 10 not in first["steps"] and 12 in first["steps"] and first["steps"] == second["steps"]
    assert step_plans.read_profile(Run.open(tmp_path / "run")) is not None
    # So small a checkpoint may take the store longer than it takes the step.
    assert any("the step has no plan" in message or "would hold" in message for message in first["messages"])
