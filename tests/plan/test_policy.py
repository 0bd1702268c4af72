"""Every k steps, from any step, and nothing but."""

import pytest

from deepfreeze.core.errors import OptionError
from deepfreeze.plan.policy import EverySteps, as_policy


@pytest.mark.parametrize(("step", "due"), [(0, 15), (1, 15), (14, 15), (15, 30), (16, 30), (29, 30), (30, 45)])
def test_the_next_checkpoint_is_the_next_multiple(step, due):
    assert EverySteps(15).next_step(step) == due


@pytest.mark.parametrize("every", [0, -1, 1.5, True, "15", None, 2**62, float("nan")])
def test_every_0_and_other_nonsense_is_refused(every):
    with pytest.raises(OptionError, match=r"every=: expected a whole number of steps, 1 or more, or a policy; found"):
        as_policy(every)


def test_the_largest_number_of_steps_stays_within_64_bits():
    assert as_policy(2**62 - 1).next_step(2**62 - 2) == 2**62 - 1
    assert as_policy(2**62 - 1).next_step(2**62 - 1) < 2**63


def test_a_policy_object_is_taken_as_it_is():
    class Own:
        def next_step(self, step):
            return step + 3

    own = Own()
    assert as_policy(own) is own
