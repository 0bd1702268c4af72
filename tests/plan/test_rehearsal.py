"""A rehearsal's environment variables, and what they ask for."""

import pytest

from deepfreeze.errors import OptionError
from deepfreeze.plan import NEVER, EverySteps
from deepfreeze.plan.rehearsal import Rehearsal

VALUES = {"RUN": "/scratch/run", "STEPS": "20", "AT": "7", "KILL": "1"}


def of(**values):
    return Rehearsal.of({f"DEEPFREEZE_CHECK_{name}": text for name, text in (VALUES | values).items()})


def test_the_variables_say_what_was_asked_for():
    asked = Rehearsal("/scratch/run", 20, 7, kills=True)
    assert of() == asked == Rehearsal.of(asked.environment())
    assert of(KILL="0") == Rehearsal("/scratch/run", 20, 7, kills=False)
    assert of(RUN="", STEPS="wrong") is None and Rehearsal.of({}) is None


@pytest.mark.parametrize(
    "values",
    [{"STEPS": "x"}, {"STEPS": ""}, {"AT": "0"}, {"AT": "-1"}, {"AT": "20"}],
    ids=["x", "none", "0", "-1", "last"],
)
def test_a_wrong_variable_is_named(values):
    (name,) = values
    with pytest.raises(OptionError, match=f"DEEPFREEZE_CHECK_{name}: expected a step"):
        of(**values)


def test_both_steps_get_a_checkpoint_beside_those_of_the_program():
    policy = of().policy(EverySteps(6))
    steps, step = [], 0
    while (step := policy.next_step(step)) < 30:
        steps.append(step)
    assert steps == [6, 7, 12, 18, 20, 24]
    assert of().policy(EverySteps(NEVER - 1)).next_step(20) == NEVER - 1
    assert str(policy) == "FirstOf(6, AtSteps(7, 20))"


def test_a_training_that_has_begun_behind_the_kill_is_not_killed():
    asked = of()
    assert asked.kills_at(7, 0) and asked.kills_at(9, 6)
    assert not asked.kills_at(6, 0) and not asked.kills_at(20, 7) and not of(KILL="0").kills_at(7, 0)
    assert asked.ends(20) and asked.ends(21) and not asked.ends(19)
