"""Which steps a fit captures, as executions of any length pass them."""

from itertools import count

import numpy as np
import pytest
from hypothesis import strategies as st

import deepfreeze
from deepfreeze.plan.every import EverySteps
from deepfreeze.plan.schedule import NEVER, Execution, Schedule
from tests.extending.prime_steps import PrimeSteps
from tests.support.properties import holds


class At:
    """A policy of any steps, the last of which are behind all that is run."""

    def __init__(self, steps: set[int]) -> None:
        self.steps = sorted({*steps, 200, 210, 220})

    def next_step(self, step: int) -> int:
        return next(due for due in self.steps if due > step)


policies = st.builds(EverySteps, st.integers(1, 12)) | st.builds(At, st.sets(st.integers(1, 80)))
lengths = st.lists(st.tuples(st.integers(1, 6), st.booleans()), max_size=25)
starts = st.integers(0, 30)


def due_after(policy, begin: int, skipped: int = 0) -> int:
    """The first step behind ``begin`` that a policy asks for, each looked at by itself, and that is not skipped."""
    return next(step for step in count(begin + 1) if policy.next_step(step - 1) == step != skipped)


def due_within(policy, begin: int, end: int) -> list[int]:
    """All such steps up to ``end``."""
    return [step for step in range(begin + 1, end + 1) if policy.next_step(step - 1) == step]


@holds(policy=policies, start=starts, lengths=lengths, captures=st.booleans(), inside=st.booleans())
def test_a_due_step_is_captured_skipped_or_missed_as_counted_by_hand(policy, start, lengths, captures, inside):
    """In each execution: the first due step that is not skipped is captured, there or at the execution's end, and the second one is
    missed. Nothing is captured in the first execution of unlike ranks."""
    schedule, step, skipped = Schedule(policy, start, captures, inside), start, 0
    for number, (steps, skips) in enumerate(lengths):
        due = due_within(policy, step, step + steps)
        agreed = due_after(policy, step) if skips and number and skipped <= step else 0
        if agreed:
            skipped = agreed
            assert schedule.aim(agreed) and not schedule.aim(agreed), "what was agreed stays until something else is"
        left = [one for one in due if one != skipped]
        armed = captures or number
        assert schedule.within(steps) == bool(armed and left)
        later = [one for one in due_within(policy, step + steps, step + 2 * steps) if one != skipped]
        assert schedule.after_next(steps) == (later[0] if later else None)
        step += steps
        captured = (left[0] if inside else step) if armed and left else None
        missed = next((one for one in left if one > (captured or 0)), None) if left else None
        assert schedule.ended(step) == Execution(steps, captured, skipped if skipped in due else None, missed)
        assert schedule.aim(0) == (not armed or captured is not None)
        assert schedule.target == due_after(policy, step, skipped)


def test_nothing_is_captured_after_the_stop():
    schedule = Schedule(EverySteps(1), 0, True)
    schedule.stop()
    assert schedule.ended(1).captured is None and not schedule.within(100) and schedule.target == NEVER


def test_an_execution_that_can_not_capture_is_captured_at_its_end():
    schedule = Schedule(EverySteps(5), 0, True)
    assert schedule.ended(4, inside=False).captured is None
    assert schedule.ended(8, inside=False) == Execution(4, 8, None, None)
    schedule.aim(0)
    assert schedule.ended(12).captured == 10


class Wrong:
    """A policy that returns ``due``, whatever the step is."""

    def __init__(self, due):
        self.due = due

    def next_step(self, step):
        return self.due


@pytest.mark.parametrize("due", [5, 4, -1, 6.0, None, "6"], ids=str)
def test_a_policy_that_returns_no_later_step_is_named(due):
    with pytest.raises(deepfreeze.OptionError, match=r"next_step\(step\) .* above step; found Wrong.next_step\(5\): "):
        Schedule(Wrong(due), 5, True)


def test_a_policy_may_return_numpys_integers_and_steps_beyond_never():
    schedule = Schedule(Wrong(np.int64(6)), 5, True)
    assert schedule.target == 6 and type(schedule.target) is int
    assert Schedule(Wrong(2**70), 5, True).target == NEVER


def test_a_policy_that_raises_is_named():
    class Broken:
        def next_step(self, step):
            return step // 0

    with pytest.raises(deepfreeze.OptionError, match=r"found Broken.next_step\(5\): ZeroDivisionError: "):
        Schedule(Broken(), 5, True)


def test_a_policy_changes_its_mind_when_the_armed_step_is_skipped():
    policy = PrimeSteps()
    schedule = Schedule(policy, 3, True)
    assert schedule.ended(4).captured is None and schedule.decided == 5
    policy.agree(2, schedule.decided)
    assert schedule.aim(5) and schedule.target == 7
    assert schedule.ended(5) == Execution(1, None, 5, None)


@holds(policy=st.builds(EverySteps, st.integers(1, 12)), start=starts, lengths=lengths, inside=st.booleans())
def test_a_policy_is_asked_about_no_step_before_the_last_execution_s_end(policy, start, lengths, inside):
    """So a policy may forget what it said of steps that are over."""

    class Watched:
        floor = start

        def next_step(self, step):
            assert step >= self.floor
            return policy.next_step(step)

    watched = Watched()
    schedule = Schedule(watched, start, True, inside)
    for steps, skips in lengths:
        watched.floor = schedule.step
        schedule.aim(schedule.target if skips else 0)
        schedule.serve(schedule.step, steps)
        schedule.after_next(steps)
        schedule.ended(schedule.step + steps)
        schedule.aim(0)


@holds(policy=policies, start=starts, lengths=lengths, inside=st.booleans())
def test_a_wished_for_step_is_captured_soon_and_once(policy, start, lengths, inside):
    """Whatever the policy's own steps are: a step from ``since`` on is captured once, and no further one for the same wish."""
    schedule, since = Schedule(policy, start, True, inside), 0
    for steps, wishes in lengths:
        begin, before = schedule.step, schedule.target
        done = schedule.ended(begin + steps)
        if done.captured is not None:
            schedule.taken(done.captured)
            assert done.captured == (before if inside else schedule.step)
        if since and schedule.captured >= since:
            since = 0
        assert not since or schedule.step < since + 12, "two executions"
        if wishes and not since:
            since = schedule.step + 1
        schedule.aim(0)
        schedule.serve(since, steps)
        due = due_after(policy, schedule.step)
        assert schedule.step < schedule.target <= due
        assert since or schedule.target == due


def test_a_wished_for_step_that_is_skipped_is_tried_again():
    schedule = Schedule(EverySteps(100), 0, True)
    schedule.ended(1)
    assert schedule.serve(2, 1) and schedule.target == 3
    schedule.ended(2)
    assert not schedule.serve(2, 1) and schedule.aim(3) and schedule.target == 100
    assert schedule.ended(3) == Execution(1, None, 3, None)
    assert schedule.serve(2, 1) and schedule.target == 5


def test_what_is_learned_of_an_epochs_end_undoes_no_agreement():
    """Neither a step that was agreed on to be captured soon, nor one that was agreed on to be skipped."""
    schedule = Schedule(EverySteps(100), 0, True)
    schedule.ended(1)
    assert schedule.serve(2, 1) and schedule.target == 3
    assert not schedule.reconsider() and schedule.target == 3
    schedule.ended(3)
    schedule.taken(3)
    assert schedule.aim(0) and schedule.target == 100
    assert not schedule.reconsider() and schedule.target == 100, "the wish is served"
    schedule.ended(98)
    assert schedule.aim(100) and schedule.target == 200
    assert not schedule.reconsider() and schedule.target == 200


def test_a_step_that_is_due_in_the_same_execution_serves():
    """Of steps 11 to 20, which are one execution, only one can be captured: the one that is due by itself."""
    schedule = Schedule(EverySteps(20), 0, True)
    schedule.ended(0)
    assert not schedule.serve(1, 10) and schedule.target == 20


def test_after_the_stop_no_wish_and_no_epoch_counts():
    schedule = Schedule(EverySteps(1), 0, True)
    schedule.stop()
    assert not schedule.reconsider() and not schedule.aim(0) and schedule.target == NEVER and schedule.settled(0)
