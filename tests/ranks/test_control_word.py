"""The ranks agree on the maximum of their proposals, and meet by agreed numbers alone."""

import random

import pytest

from deepfreeze.errors import EngineError, OptionError
from deepfreeze.notices import unheard
from deepfreeze.ranks.agreement import Agreement
from deepfreeze.ranks.control_word import ControlWord
from deepfreeze.ranks.meetings import Meetings
from deepfreeze.ranks.world import OneRank
from tests.support import threads
from tests.support.seed import SEED


def test_each_field_has_the_greatest_proposal_on_every_rank():
    def rank(world):
        word = ControlWord(world)
        first, second = word.field("first"), word.field("second")
        word.seal()
        word.connect(None)
        word.meet()
        seen = [(first.agreed, second.agreed)]
        first.propose(10 - world.rank)
        second.propose(world.rank)
        word.meet()
        seen.append((first.agreed, second.agreed))
        first.propose(0)  # takes the proposal back
        word.meet()
        return [*seen, (first.agreed, second.agreed)]

    assert threads.run(3, rank) == [[(0, 0), (10, 2), (0, 2)]] * 3


@pytest.mark.parametrize("sealed", [False, True])
def test_a_field_is_new_and_registered_before_the_training_begins(sealed):
    word = ControlWord(OneRank())
    word.field("interval")
    if sealed:
        word.seal()
    with pytest.raises(OptionError, match="registered before the train function is traced; found a"):
        word.field("other" if sealed else "interval")
    assert word.names == ("interval",)


def test_ranks_with_other_fields_are_named_by_every_rank():
    def rank(world):
        word = ControlWord(world)
        word.field("stop")
        if world.rank == 1:
            word.field("interval")
        word.seal()

    for error in threads.run(3, rank):
        assert isinstance(error, OptionError) and "rank 1: expected the same fields" in str(error)
        assert "found stop, interval" in str(error)


@pytest.mark.parametrize("value", [-1, 2**63])
def test_a_proposal_that_no_integer_of_the_word_holds_is_refused(value):
    with pytest.raises(OptionError, match="field interval: expected a whole number from 0"):
        ControlWord(OneRank()).field("interval").propose(value)


def test_four_ranks_with_different_clocks_meet_after_the_same_executions():
    """Each clock runs at a speed of its own, and jumps. If one rank met by its own clock, the others would wait for ever."""
    chance = random.Random(SEED)
    soon = [chance.random() < 0.05 for _ in range(3000)]
    speeds = [[chance.choice([0.0, 1e-4, 0.003, 0.02, 0.5, 40.0]) for _ in range(6)] for _ in range(4)]

    def rank(world):
        now, met = 0.0, []
        word = ControlWord(world)
        meetings = Meetings(word.field("pace"), lambda: now)
        word.seal()
        word.connect(None)
        for number, asked in enumerate(soon):
            now += speeds[world.rank][number * 6 // len(soon)] * (1 + world.rank)
            if meetings.due(asked):
                word.meet()
                meetings.met()
                met.append((number, meetings.every))
        return met

    first, *others = threads.run(4, rank)
    assert not isinstance(first, Exception), first
    assert others == [first] * 3 and len(first) >= sum(soon)


@pytest.mark.parametrize(("seconds", "every"), [(0.01, 100), (0.4, 2), (1.5, 1), (60.0, 1), (1e-6, 1000)])
def test_ranks_meet_about_once_in_a_second_of_the_slowest(seconds, every):
    def rank(world):
        now = 0.0
        word = ControlWord(world)
        meetings = Meetings(word.field("pace"), lambda: now)
        word.seal()
        found = []
        for number in range(2500):
            now += seconds if world.rank == 2 else seconds / 10
            if meetings.due(False):
                word.meet()
                meetings.met()
                found.append(number)
        return found

    first, *others = threads.run(3, rank)
    assert others == [first] * 2
    assert first[0] == 0 and first[1] - first[0] == pytest.approx(every, abs=1)


def test_ranks_meet_in_each_execution_when_steps_have_become_slow():
    now = 0.0
    word = ControlWord(OneRank())
    meetings = Meetings(word.field("pace"), lambda: now)
    pace = [0.01] * 150 + [2.0] * 200
    met = []
    for number, seconds in enumerate(pace):
        now += seconds
        if meetings.due(False):
            word.meet()
            meetings.met()
            met.append(number)
    assert [one for one in met if one > 250] == list(range(251, 350))


def test_a_failure_is_raised_by_all_ranks_after_the_same_execution():
    """Between two meetings the ranks go on: the failed one too."""

    def rank(world):
        now = 0.0
        agreement = Agreement(world, (), unheard, clock=lambda: now)
        agreement.seal()
        agreement.connect(None)
        for number in range(1, 1000):
            now += 0.1
            if (world.rank, number) == (1, 4):
                agreement.fail(EngineError(where="here", expected="a", found="b", todo="c"))
            try:
                agreement.settle(soon=False)
            except EngineError as error:
                return number, str(error)
        return None

    (first, text), (second, own), (third, _) = threads.run(3, rank)
    assert first == second == third == 10 + 1, "the meeting after the first one, a second later"
    assert "rank 1: expected its checkpoints to go well" in text and own.startswith("here: expected a")
