"""A plan that is played does as its figures say."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from deepfreeze.plan.step import usage
from deepfreeze.plan.step.greedy import greedy
from deepfreeze.plan.step.parts import PlannedPart
from deepfreeze.plan.step.question import Question, SavedTensor, StepWindow
from deepfreeze.plan.step.simulate import Pace, held_by_step, played
from tests.support.seed import SEED


def windows_of(rng: random.Random, number: int) -> tuple[StepWindow, ...]:
    return tuple(StepWindow(rng.uniform(0.1, 1.0), rng.randint(100, 400), rng.random()) for _ in range(number))


@pytest.mark.parametrize("carry", [0, 75])
@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("cyclic", [False, True])
def test_a_plan_never_waits_and_holds_no_more_than_it_says(cyclic, direct, carry):
    rng, plans = random.Random(SEED), 0
    for _ in range(40):
        tensors = tuple(SavedTensor(f"t{n}", rng.randint(10, 300), rng.randint(1, 9)) for n in range(4))
        asked = Question(windows_of(rng, 10), tensors, rng.choice([1, 2]), cyclic=cyclic, direct=direct, carry=carry)
        plan = greedy(asked, [4] * 4)
        if plan is None:
            continue
        plans += 1
        found, says = played(asked, plan), usage.held(asked, plan)
        assert found.stall == pytest.approx(0, abs=1e-9)
        assert found.seconds == pytest.approx(asked.every * sum(window.seconds for window in asked.windows))
        assert all(holds <= most for holds, most in zip(found.held, says, strict=True))
        # All copies of a window are there before the first one of them is written, unless a write begins in the window before.
        assert carry or found.extra == says.max()
    assert plans > 10


def test_a_slower_store_makes_a_period_longer_by_no_more_than_its_writes():
    asked = Question((StepWindow(1.0, 100),) * 10, (SavedTensor("kernel", 800, 5),))
    plan = greedy(asked, [16])
    assert plan is not None
    for slower in (1.0, 1.2, 2.0, 5.0):
        found = played(asked, plan, Pace(slower=slower), periods=40)
        # The plan writes in eight of ten windows. Memory for a few parts can't hide that the store is late in each of them.
        assert max(10.0, 8.0 * slower) - 1e-6 <= found.seconds <= 8.0 * slower + 2.0 + 1e-6
        assert found.extra <= usage.held(asked, plan).max()
        assert found.used == pytest.approx(8.0 * slower / found.seconds)


def test_an_update_waits_for_a_write_without_a_copy():
    asked = Question((StepWindow(1.0, 100),) * 4, (SavedTensor("kernel", 100, 2),), direct=True)
    plan = [PlannedPart(0, 0, 100, None, 1)]
    assert played(asked, plan).stall == 0
    found = played(asked, plan, Pace(slower=3.0))
    assert found.waited == pytest.approx((0, 0, 2.0, 0)) and found.seconds == pytest.approx(6.0)


def test_handing_a_part_over_makes_a_busy_window_longer():
    windows = tuple(StepWindow(1.0, 100, busy) for busy in (0.0, 0.5, 1.0))
    asked = Question(windows, (SavedTensor("kernel", 100, 2),), cyclic=False, direct=True)
    for window, longer in ((0, 0.0), (1, 0.25)):
        found = played(asked, [PlannedPart(0, 0, 100, None, window)], Pace(cost=1 / 200))
        assert found.longer == pytest.approx(longer) and found.seconds == pytest.approx(3 + longer)


def test_copies_make_a_busy_window_longer():
    asked = Question(
        tuple(StepWindow(1.0, 100, busy) for busy in (0.0, 0.5, 1.0)), (SavedTensor("kernel", 100, 2),), cyclic=False
    )
    for window, longer in ((0, 0.0), (1, 0.25)):
        found = played(asked, [PlannedPart(0, 0, 100, window, 2)], Pace(cost=1 / 200))
        assert found.longer == pytest.approx(longer) and found.seconds == pytest.approx(3 + longer)
    assert played(
        replace(asked, cyclic=True), [PlannedPart(0, 0, 100, -1, 1)], Pace(cost=1 / 200)
    ).longer == pytest.approx(0.5)


def test_a_copy_that_takes_time_is_held_from_its_own_beginning_on():
    """Three parts are copied in one window. The store takes each before the next one is copied, if the copies are slow enough."""
    asked = Question((StepWindow(1.0, 300),) * 4, (SavedTensor("kernel", 300, 3),), cyclic=False, carry=300)
    parts = [PlannedPart(0, begin, 100, 0, 1) for begin in (0, 100, 200)]
    assert played(asked, parts).held == (300, 0, 0, 0)
    found = played(asked, parts, Pace(copy_rate=300.0))
    assert found.extra == 200, "a part is copied while the one before it is written"
    assert found.held[1] == 100, "the last one is written in the window behind"
    assert found.seconds == pytest.approx(4.0)


def test_an_update_waits_until_all_of_its_tensor_is_copied():
    asked = Question((StepWindow(1.0, 100),) * 4, (SavedTensor("kernel", 100, 2),), cyclic=False)
    found = played(asked, [PlannedPart(0, 0, 100, 1, 2)], Pace(copy_rate=50.0))
    assert found.waited == pytest.approx((0, 0, 1.0, 0)) and found.seconds == pytest.approx(5.0)


def test_the_end_of_a_step_waits_for_copies():
    asked = Question((StepWindow(1.0, 100),) * 4, (SavedTensor("kernel", 100, 2),))
    found = played(asked, [PlannedPart(0, 0, 100, -1, 0)], Pace(copy_rate=40.0))
    assert found.waited == pytest.approx((0, 0, 0, 1.5)) and found.seconds == pytest.approx(5.5)


def test_parts_that_are_written_at_once_are_held_until_all_are_written():
    asked = Question((StepWindow(1.0, 100),) * 4, (SavedTensor("kernel", 200, 3),), cyclic=False, carry=100)
    parts = [PlannedPart(0, begin, 100, 0, 1) for begin in (0, 100)]
    assert played(asked, parts).held == (200, 100, 0, 0)
    assert played(asked, parts, Pace(writers=2)).held == (200, 200, 0, 0)


def test_a_store_that_is_slower_beside_copies_holds_them_longer():
    asked = Question((StepWindow(1.0, 100),) * 4, (SavedTensor("kernel", 200, 3),), cyclic=False, carry=100)
    parts = [PlannedPart(0, begin, 100, 0, 1) for begin in (0, 100)]
    # The second copy is made in the second window. Beside it, half of the first one is written.
    assert played(asked, parts, Pace(copy_rate=100.0)).held == (100, 200, 100, 0)
    assert played(asked, parts, Pace(copy_rate=100.0, beside=0.5)).held == (100, 200, 200, 100)


def test_windows_that_come_early_in_a_step_hold_copies_together():
    asked = Question((StepWindow(1.0, 100),) * 4, (SavedTensor("kernel", 200, 3),))
    parts = [PlannedPart(0, 0, 100, 0, 1), PlannedPart(0, 100, 100, 2, 3)]
    steps = [(1.0, 1.0, 1.0, 1.0), (1.0, 0.5, 1.0, 1.5), (1.0, 1.0, 1.0, 1.0)]
    assert held_by_step(asked, parts, steps, room=200) == [100, 200, 100]
    assert held_by_step(asked, parts, steps) == [100, 100, 100], "a copy waits for its memory"
