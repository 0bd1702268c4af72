"""Every k steps, from any step, and nothing but."""

import pytest
from hypothesis import strategies as st

from deepfreeze.errors import OptionError
from deepfreeze.plan.every import EverySteps, as_policy
from deepfreeze.plan.never import NEVER
from tests.support.properties import holds


@holds(every=st.integers(1, 50), step=st.integers(0, 10**6))
def test_the_next_checkpoint_is_the_next_multiple(every, step):
    due = EverySteps(every).next_step(step)
    assert [one for one in range(step + 1, due + 1) if one % every == 0] == [due]


@holds(every=st.integers(1, NEVER - 1), step=st.integers(0, NEVER - 1))
def test_the_next_checkpoint_is_later_and_stays_within_64_bits(every, step):
    assert step < as_policy(every).next_step(step) <= step + every < 2**63


@pytest.mark.parametrize("every", [0, -1, 1.5, True, "15", None, 2**62, float("nan")])
def test_every_0_and_other_nonsense_is_refused(every):
    with pytest.raises(
        OptionError, match=r"every=: expected a whole number of steps, 1 or more, 'auto', 'epoch', or a policy; found"
    ):
        as_policy(every)


def test_a_policy_object_is_taken_as_it_is():
    class Own:
        def next_step(self, step):
            return step + 3

    own = Own()
    assert as_policy(own) is own
