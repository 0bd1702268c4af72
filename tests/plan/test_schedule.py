"""Which steps a fit captures, as executions of any length pass them."""

from deepfreeze.plan.policy import EverySteps
from deepfreeze.plan.schedule import NEVER, Execution, Schedule


def test_every_due_step_is_captured_once():
    schedule, captured = Schedule(EverySteps(3), 4, True), []
    for step in range(5, 14):
        done = schedule.ended(step)
        assert done == Execution(1, done.captured, None, None)
        captured += [done.captured] if done.captured else []
        assert schedule.aim(0) == (done.captured is not None)
    assert captured == [6, 9, 12] and schedule.target == 15


def test_a_step_inside_an_execution_is_captured_there():
    schedule = Schedule(EverySteps(6), 0, True)
    assert not schedule.within(4) and schedule.after_next(4) == 6
    assert schedule.ended(4) == Execution(4, None, None, None)
    assert not schedule.aim(0) and schedule.within(4)
    assert schedule.ended(8) == Execution(4, 6, None, None)


def test_two_steps_due_in_one_execution_are_missed_by_one():
    schedule = Schedule(EverySteps(2), 0, True)
    assert schedule.ended(4) == Execution(4, 2, None, 4)


def test_a_skipped_step_is_neither_captured_nor_missed():
    schedule = Schedule(EverySteps(1), 0, True)
    assert schedule.ended(1).captured == 1
    assert schedule.aim(2) and schedule.target == 3
    assert schedule.ended(2) == Execution(1, None, 2, None)
    assert not schedule.aim(2), "what was agreed stays until something else is"
    assert schedule.ended(3) == Execution(1, 3, None, None)


def test_a_step_that_was_armed_can_still_be_skipped():
    schedule = Schedule(EverySteps(5), 0, True)
    assert not schedule.ended(4).captured
    assert schedule.aim(5) and schedule.target == 10
    assert schedule.ended(5) == Execution(1, None, 5, None)


def test_unlike_ranks_miss_what_is_due_in_the_first_execution_and_capture_from_then_on():
    schedule = Schedule(EverySteps(1), 0, False)
    assert schedule.target == NEVER
    assert schedule.ended(1) == Execution(1, None, None, 1)
    assert schedule.aim(0) and schedule.target == 2


def test_nothing_is_captured_after_the_stop():
    schedule = Schedule(EverySteps(1), 0, True)
    schedule.stop()
    assert schedule.ended(1).captured is None and not schedule.within(100)
