"""A plan of a step keeps all rules, and is the best one there is."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from deepfreeze.errors import OptionError
from deepfreeze.plan.step import calmest, equal_parts, feasible, paper_program, usage
from deepfreeze.plan.step.checker import violations
from deepfreeze.plan.step.checkflow import planned
from deepfreeze.plan.step.compact_program import ROUNDED, CompactProgram
from deepfreeze.plan.step.earliest_end import disturbance, ended_early
from deepfreeze.plan.step.greedy import at_update, greedy
from deepfreeze.plan.step.highs import Solution, Solver
from deepfreeze.plan.step.parts import PlannedPart, cut, joined, pieces
from deepfreeze.plan.step.question import Question, SavedTensor, StepWindow
from deepfreeze.plan.step.step_plan import StepPlan
from tests.support.seed import SEED

GRAIN = 192_000  # bytes: of everything that is random here, so that parts and their halves are whole
PER_PART = 2 * GRAIN
ROOM = 1.001  # times the rate that whole parts need: the bounds of plans of any parts are true to a few bytes


def question(rng: random.Random, windows: int = 5, tensors: int = 3, **options: object) -> Question:
    def nbytes(least: int, most: int) -> int:
        return GRAIN * rng.randint(least, most)

    def window() -> StepWindow:
        capacity = rng.choice([None, nbytes(0, 3)])
        return StepWindow(rng.randint(1, 4), nbytes(0, 6), rng.random(), nbytes(0, 3), copy_capacity=capacity)

    made = tuple(window() for _ in range(windows))

    def tensor(number: int) -> SavedTensor:
        update = rng.randint(1, windows - 1)
        ready = rng.choice([None, rng.randint(update, windows - 1)])
        return SavedTensor(f"t{number}", nbytes(1, 6), update, ready)

    saved = tuple(tensor(number) for number in range(tensors))
    return faster(Question(made, saved, **{"cyclic": False, **options}), ROOM)  # type: ignore[arg-type]


def parts_of(asked: Question) -> list[int]:
    return cut(asked.tensors, PER_PART)


def found(asked: Question, per_part: int = PER_PART) -> StepPlan | None:
    try:
        return planned(asked, per_part)
    except OptionError:
        return None


def least(asked: Question, parts: list[int]) -> int | None:
    """The smallest peak by the compact form."""
    program = CompactProgram(asked, parts)
    solution = Solver().solve(program.least_peak())
    return None if solution.values is None else usage.peak(asked, program.plan(solution.values))


def every_plan(asked: Question, parts: list[int]) -> Iterator[list[PlannedPart]]:
    """All that can be done with all parts, whether it keeps the bounds or not."""
    choices = []
    for index, (tensor, k) in enumerate(zip(asked.tensors, parts, strict=True)):
        for begin, nbytes in pieces(tensor.nbytes, k):
            whens = itertools.combinations(range(asked.horizon), 2)
            choices.append(
                [PlannedPart(index, begin, nbytes, copy, write) for copy, write in whens if copy < tensor.update]
            )
    return map(list, itertools.product(*choices))


def by_enumeration(asked: Question, parts: list[int]) -> int | None:
    """The smallest peak of all plans that the checker lets pass."""
    return min(
        (usage.peak(asked, plan) for plan in every_plan(asked, parts) if not violations(asked, plan)),
        default=None,
    )


def test_both_forms_have_the_same_optimum():
    rng, feasible = random.Random(SEED), 0
    for _ in range(25):
        asked = question(rng, windows=rng.randint(3, 5), tensors=2)
        parts = [rng.choice((1, 2)) for tensor in asked.tensors]
        compact, paper = least(asked, parts), paper_program.smallest_peak(asked, parts)
        assert (None if paper is None else paper[1]) == compact == by_enumeration(asked, parts), asked
        carried = replace(asked, carry=2 * GRAIN)
        assert least(carried, parts) == by_enumeration(carried, parts), carried
        assert paper is None or not violations(asked, paper[0])
        feasible += compact is not None
    assert feasible > 5


def test_what_the_first_window_updates_has_no_plan_without_a_cycle():
    """The paper's (8) has a tensor copied before its update; before the first window there is nothing."""
    windows = (StepWindow(1, GRAIN), StepWindow(1, GRAIN))
    for update, has_plan in ((0, False), (1, True)):
        asked = Question(windows, (SavedTensor("t", GRAIN, update),), cyclic=False)
        assert (paper_program.smallest_peak(asked, [1]) is not None) == has_plan
        assert (least(asked, [1]) is not None) == has_plan


@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("cyclic", [False, True])
def test_every_plan_passes_the_independent_checker(cyclic, direct):
    rng, plans = random.Random(SEED), 0
    for _ in range(10):
        carry = rng.choice([0, 1, 3]) * GRAIN
        asked = question(rng, cyclic=cyclic, direct=direct, every=rng.choice([1, 1, 2]), carry=carry)
        made = found(asked)
        if made is None:
            continue
        plans += 1
        assert not violations(asked, made.parts), asked
        with_memory = replace(asked, memory=made.peak + 2 * ROUNDED * len(asked.tensors))
        assert not violations(with_memory, planned(with_memory, PER_PART).parts), with_memory
        late = greedy(asked, parts_of(asked))
        assert late is None or not violations(asked, late)
        today = replace(asked, cyclic=True, direct=False)
        early = at_update(today, parts_of(asked))
        assert early is None or not violations(today, early)
    assert plans > 2


def put_off(asked: Question, parts: list[PlannedPart]) -> list[PlannedPart]:
    """The plan with each part written as late as the rules allow, one after the other."""
    for at in range(len(parts)):
        for window in reversed(range(parts[at].write + 1, asked.writes(asked.tensors[parts[at].tensor]).stop)):
            trial = [*parts[:at], replace(parts[at], write=window), *parts[at + 1 :]]
            if not violations(asked, trial):
                parts = trial
                break
    return parts


def test_a_plan_that_ends_earlier_keeps_all_bounds():
    rng, earlier = random.Random(SEED), 0
    for _ in range(30):
        options = {"cyclic": sometimes(rng), "direct": sometimes(rng), "every": rng.choice([1, 2])}
        asked = faster(question(rng, **options, carry=rng.choice([0, 1, 3]) * GRAIN), 2)
        late = greedy(asked, parts_of(asked))
        if late is None:
            continue
        late = put_off(asked, late)
        made = ended_early(asked, late, 0.2, Solver())
        assert not violations(asked, made), asked
        assert usage.peak(asked, made) <= usage.peak(asked, late), asked
        assert disturbance(asked, made) <= 1.2 * disturbance(asked, late), asked
        ends = [max(part.write for part in parts) for parts in (made, late)]
        assert ends[0] <= ends[1], asked
        earlier += ends[0] < ends[1]
    assert earlier > 5


@pytest.mark.parametrize(
    "capacities, busy, carry, writes",
    [
        ([1, 1, 1, 1, 1, 1], [0.5] * 6, 0, [1, 2, 3]),
        ([1, 1, 0, 1, 1, 1], [0.5] * 6, 0, [1, 3, 4]),
        ([1, 3, 1, 1, 1, 1], [0.5] * 6, 0, [1, 1, 1]),
        ([1, 1, 1, 1, 1, 1], [0.5, 0.5, 1, 0.5, 0.5, 0.5], 0, [1, 3, 4]),
        ([1, 1, 0, 1, 1, 1], [0.5] * 6, 1, [1, 1, 3]),
    ],
    ids=["room", "full", "wide", "busy", "carry"],
)
def test_the_last_parts_are_written_where_there_is_room(capacities, busy, carry, writes):
    """All is copied in the first of six windows, and written in the last three."""
    windows = tuple(StepWindow(1, GRAIN * room, share) for room, share in zip(capacities, busy, strict=True))
    asked = Question(windows, (SavedTensor("weights", 3 * GRAIN, 5),), cyclic=False, carry=carry * GRAIN)
    late = [PlannedPart(0, n * GRAIN, GRAIN, 0, 3 + n) for n in range(3)]
    made = ended_early(asked, late, 0.0, Solver())
    assert sorted(part.write for part in made) == writes
    assert not violations(asked, made)


def never_worse(changed, **options):
    """Questions that have a plan have one with no more memory when they are changed, and some have a better one. ``changed``: a function
    that takes a question and its parts, and returns both. ``options``: of the questions, by functions of the random numbers."""
    rng, better = random.Random(SEED), 0
    for _ in range(25):
        asked = question(rng, **{name: choose(rng) for name, choose in options.items()})
        before, after = least(asked, parts_of(asked)), least(*changed(asked, parts_of(asked)))
        if before is not None:
            assert after is not None and after <= before, asked
        better += after is not None and (before is None or after < before)
    assert better, "it helps some of them"


def sometimes(rng: random.Random) -> bool:
    return rng.random() < 0.4


def test_the_cyclic_plan_is_never_worse():
    never_worse(lambda asked, parts: (replace(asked, cyclic=True), parts), direct=sometimes)


def test_a_store_that_goes_on_over_the_end_of_a_window_is_never_worse():
    never_worse(lambda asked, parts: (replace(asked, carry=PER_PART), parts), cyclic=sometimes, direct=sometimes)


def test_halving_the_parts_never_needs_more_memory():
    halved = {"cyclic": sometimes, "carry": lambda rng: rng.choice([0, 2]) * GRAIN}
    never_worse(lambda asked, parts: (asked, [2 * k for k in parts]), **halved)


def test_the_optimum_is_not_below_the_bound_nor_above_greedy():
    rng, plans = random.Random(SEED), 0
    for _ in range(30):
        asked = question(rng, cyclic=rng.random() < 0.5, direct=rng.random() < 0.3)
        made = found(asked)
        if made is None:
            continue
        plans += 1
        slack = 1e-6 * made.peak
        assert made.fine_bound - slack <= made.bound <= made.peak + slack, asked
        assert made.greedy is None or made.peak <= made.greedy * 1.005, (
            "half a percent is given to calm and an early end"
        )
    assert plans > 5


def test_a_greedy_plan_of_several_steps_is_about_a_part_above_the_bound():
    """The greedy plan of four steps exceeds the bound by a part at most, on average. Bisection alone held up to four times the bound."""
    rng, per_part, above = random.Random(SEED), 25, []
    for _ in range(10):
        windows = tuple(StepWindow(rng.uniform(0.1, 1), rng.randint(100, 400)) for _ in range(12))
        tensors = tuple(SavedTensor(f"t{n}", rng.randint(50, 300), rng.randint(2, 11)) for n in range(6))
        asked = Question(windows, tensors, 4, carry=2 * per_part)
        made = greedy(asked, cut(tensors, per_part))
        assert made is not None and not violations(asked, made)
        fine = CompactProgram(asked, cut(tensors, per_part), fine=True)
        bound = Solver().solve(fine.least_peak()).cost * fine.unit
        above.append(usage.peak(asked, made) - bound)
    assert min(above) >= -1e-6 and sum(above) <= len(above) * per_part, above


def test_what_is_said_to_be_feasible_is_and_less_is_not():
    rng, said = random.Random(SEED), 0
    for _ in range(25):
        asked = question(rng, cyclic=rng.random() < 0.5)
        free = least(asked, parts_of(asked))
        # Less than there must be, or a store without enough room in a step.
        memory = GRAIN * rng.randint(1, 5) if free is None else int(free * 0.8)
        asked = replace(asked, memory=memory + 100)
        limits = feasible.limits(asked, parts_of(asked), Solver())
        if limits.every is not None:
            assert found(replace(asked, every=limits.every)) is not None
            assert all(found(replace(asked, every=fewer)) is None for fewer in range(1, limits.every))
        if limits.memory is not None:
            assert found(replace(asked, memory=limits.memory)) is not None
            assert found(replace(asked, memory=limits.memory - GRAIN // 100)) is None
        if limits.rate is not None:
            assert found(faster(asked, limits.rate * 1.0001)) is not None
            assert found(faster(asked, limits.rate * 0.98)) is None
        said += limits.every is not None or limits.rate is not None
    assert said, "there are such questions"


def faster(asked: Question, rate: float) -> Question:
    """With another rate of the store. Capacities are whole bytes, and as many more as plans of any parts need for that."""
    more = ROUNDED * len(asked.tensors)
    windows = [
        replace(window, capacity=int(window.capacity * rate) + more * bool(window.capacity)) for window in asked.windows
    ]
    return replace(asked, windows=tuple(windows))


def test_the_same_profile_gives_the_same_plan():
    rng = random.Random(SEED)
    asked = [
        one
        for one in (question(rng, windows=8, tensors=4, cyclic=True) for _ in range(9))
        if greedy(one, parts_of(one))
    ][:3]
    plans = [found(one) for one in asked]
    assert any(plans) and [found(one) for one in asked] == plans


@pytest.mark.parametrize(
    ("broken", "memory", "said"),
    [
        ({"copy": 2, "write": 3}, 18, "copied in window 2, updated in 2"),
        ({"copy": 1, "write": 1}, 18, "written in window 1, copied in 1"),
        ({"copy": -1, "write": 2}, 18, "copied in window -1, before it has its value"),
        ({"copy": 0, "write": 4}, 18, "written in window 4, behind 3"),
        ({"copy": None, "write": 1}, 18, "written without a copy"),
        ({"begin": 1}, 18, "a part has bytes 1 to 9, behind byte 0"),
        ({"nbytes": 7}, 18, "a part has bytes 8 to 16, behind byte 7"),
        ({"tensor": 1}, 18, "tensor 1, which there is not"),
        ({"write": 3}, 18, "window 3: 16 bytes are written, of 8"),
        ({"copy": 0}, 12, "window 1: 18 bytes in memory, of 12"),
    ],
)
def test_the_checker_names_what_is_wrong(broken, memory, said):
    asked = Question((StepWindow(1.0, 8, base=2),) * 4, (SavedTensor("kernel", 16, 2),), memory=18, cyclic=False)
    good = [PlannedPart(0, 0, 8, 1, 2), PlannedPart(0, 8, 8, 1, 3)]
    assert not violations(asked, good)
    wrong = violations(replace(asked, memory=memory), [replace(good[0], **broken), good[1]])
    assert any(said in one for one in wrong), wrong


def test_memory_of_a_copy_that_is_held_for_longer_than_a_period_counts_twice():
    asked = Question((StepWindow(1.0, 10),) * 3, (SavedTensor("kernel", 10, 2),))
    plan = [PlannedPart(0, 0, 10, -1, 3)]
    assert usage.held(asked, plan).tolist() == [20, 10, 20]
    assert usage.written(asked, plan).tolist() == [10, 0, 0]


def test_a_tensor_is_written_directly_from_where_its_update_has_ended():
    windows = (StepWindow(1.0, 100),) * 4
    ends, open_end = SavedTensor("ends", 100, 1, ready=2), SavedTensor("open", 100, 1)
    asked = Question(windows, (ends, open_end), direct=True)
    assert (asked.directs(ends), asked.directs(open_end)) == (range(-2, 1), range(-2, 1))
    at_once = replace(asked, tensors=(replace(ends, update=2, ready=3), replace(open_end, update=2)))
    first = [PlannedPart(0, 0, 100, None, -1), PlannedPart(1, 0, 100, None, -2)]
    assert [asked.directs(one).start for one in at_once.tensors] == [-1, -1]
    wrong = violations(at_once, first)
    assert len(wrong) == 1 and "open, from byte 0 on: written without a copy in window -2" in wrong[0]


def test_neighbours_are_joined_and_large_tensors_stay_alone():
    saved = [
        SavedTensor("c", 3, 2),
        SavedTensor("a", 2, 1),
        SavedTensor("b", 2, 1),
        SavedTensor("d", 50, 1),
        SavedTensor("e", 1, 1),
    ]
    made = joined(saved, at_least=10)
    assert [(one.name, one.nbytes, one.update) for one in made] == [
        ("a and 1 more", 4, 1),
        ("d", 50, 1),
        ("e", 1, 1),
        ("c", 3, 2),
    ]


def test_an_impossible_question_is_answered_with_numbers():
    megabytes = 1_000_000
    saved = tuple(SavedTensor(f"dense_{n}", 420 * megabytes, 10 + 4 * n) for n in range(5))
    asked = Question((StepWindow(0.1, 30 * megabytes),) * 30, saved, memory=1500 * megabytes)
    # The same memory for copies, beside that of training, where the writers' blocks are taken off.
    windows = tuple(replace(window, base=700 * megabytes) for window in asked.windows)
    beside = replace(asked, windows=windows, memory=2100 * megabytes, blocks=100 * megabytes)
    for one in (asked, beside):
        with pytest.raises(OptionError) as raised:
            planned(one, 30 * megabytes)
        assert str(raised.value) == (
            "memory=1.5 GB, every=1: expected room for a plan of the step; found that the store takes 900 MB in a step, of the 2.1 GB of a "
            "checkpoint. Feasible: every=3 with this memory, or a store that is 2.34 times as fast."
        )


def test_parts_that_are_too_many_for_the_solver_are_planned_greedily(monkeypatch):
    """No window takes a whole part of 40 bytes, nor of 20."""
    monkeypatch.setattr(equal_parts, "MOST_PARTS", 4)
    asked = Question((StepWindow(1.0, 10),) * 24, (SavedTensor("a", 80, 8), SavedTensor("b", 80, 20)))
    made = planned(asked, 40)
    assert not violations(asked, made.parts) and max(part.nbytes for part in made.parts) == 10
    assert made.peak == made.greedy and made.bound <= made.peak and not made.is_best
    with pytest.raises(OptionError, match="the store takes 144 B in a step, of the 160 B"):
        planned(replace(asked, windows=(StepWindow(1.0, 6),) * 24), 40)


def test_a_solver_without_time_leaves_the_greedy_plan():
    rng = random.Random(SEED)
    asked = [question(rng, windows=24, tensors=12, cyclic=True) for _ in range(5)]
    greedys = [greedy(one, parts_of(one)) for one in asked]
    for one, late in zip(asked, greedys, strict=True):
        if late is not None:
            made = planned(one, PER_PART, Instant())
            assert not violations(one, made.parts)
            assert made.peak <= usage.peak(one, late) and one.base <= made.fine_bound <= made.bound <= made.peak
    assert any(greedys)
    # No greedy plan either: nothing is known, and the message says so.
    whole = Question((StepWindow(1.0, 0), StepWindow(1.0, 240)), (SavedTensor("a", 240, 0),), memory=10)
    with pytest.raises(OptionError, match="none before the solver's time was over, and no proof that there is none"):
        planned(whole, 40, Instant())


class Instant(Solver):
    """A solver whose time is over before it has found anything."""

    def part(self, share, most=0.0):
        return self

    def solve(self, program, **options):
        return Solution(None, math.inf, 0.0, is_impossible=False, is_best=False)


class Hurried(Solver):
    """A solver that has no time for the earliest end: it gives some values, which are no plan."""

    def part(self, share, most=math.inf):
        return super().part(share) if most == math.inf else Found()


class Found(Solver):
    """A solver whose time is over when it has found some values."""

    def solve(self, program, **options):
        return Solution(np.zeros(len(program.costs)), 0.0, 0.0, is_impossible=False, is_best=False)


def test_without_time_for_the_earliest_end_the_calmest_plan_is_ended_early(monkeypatch):
    calls: list[list[PlannedPart]] = []

    def recorded(*arguments):
        calls.append(ended_early(*arguments))
        return calls[-1]

    monkeypatch.setattr(calmest, "ended_early", recorded)
    rng, plans = random.Random(SEED), 0
    for _ in range(20):
        asked = faster(question(rng, cyclic=sometimes(rng), direct=sometimes(rng)), 3)
        calls.clear()
        try:
            made = planned(asked, PER_PART, Hurried())
        except OptionError:
            continue  # the store takes too little
        assert calls and made.parts == tuple(calls[-1]), asked
        assert not violations(asked, made.parts), asked
        plans += 1
    assert plans > 5


def test_copies_are_not_heaped_into_a_window_that_is_too_short_for_them():
    """Ten windows keep the cores busy. One does so by half, but has time for a tenth of the copies alone."""
    windows = [StepWindow(1.0, 100, busy=1.0, copy_capacity=400)] * 10
    windows[4] = StepWindow(0.1, 100, busy=0.5, copy_capacity=80)
    asked = Question(tuple(windows), (SavedTensor("kernel", 800, 9),))
    assert 0 < copied_in(planned(replace(asked, memory=1600), 40), 4) <= 90
    windows[4] = replace(windows[4], copy_capacity=None)
    unbound = replace(asked, windows=tuple(windows), memory=1600)
    assert copied_in(planned(unbound, 40), 4) > 180, "the same in a window that has time for all"


def copied_in(plan: StepPlan, window: int) -> int:
    """Bytes."""
    return sum(part.nbytes for part in plan.parts if part.copy == window)


def test_a_plan_of_any_parts_is_as_good_as_the_bound():
    """No plan holds less than the program without integers. Plans of equal parts hold more where windows take few of them."""
    rng, better = random.Random(SEED), 0
    for _ in range(20):
        options = {
            "cyclic": sometimes(rng),
            "direct": sometimes(rng),
            "carry": rng.choice([0, 1]) * GRAIN,
            "every": rng.choice([1, 1, 2]),
        }
        asked = question(rng, **options)
        fine = CompactProgram(asked, parts_of(asked), fine=True)
        bound = Solver().solve(fine.least_peak())
        made, equal = found(asked), least(asked, parts_of(asked))
        assert (made is None) <= (equal is None), asked
        if made is not None:
            assert not violations(asked, made.parts), asked
            assert bound.cost * fine.unit * 0.999999 <= made.peak <= bound.cost * fine.unit * 1.0051 + 1, asked
            assert max(part.nbytes for part in made.parts) <= PER_PART
            better += equal is None or made.peak < 0.99 * equal
    assert better
