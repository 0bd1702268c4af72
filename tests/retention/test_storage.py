"""Rank 0 waits for room in the run, and for nothing else. Without engine and TensorFlow."""

import types

import pytest

from deepfreeze.errors import WaitError
from deepfreeze.ranks.world import OneRank
from deepfreeze.retention.storage import Storage
from deepfreeze.retention.usage import Usage
from deepfreeze.store import Latest, Tagged

FILE = 1000


class Keeper:
    """Answers each question with the next of its ``answers``, None for one that comes too late; the last one comes again and again."""

    most_waiting = 0

    def __init__(self, *answers):
        self.answers, self.questions, self.judged = [*answers], 0, 0
        self.last_usage = None

    def ask_for_usage(self, uncommitted, checkpoint, newest):
        self.questions += 1

    def usage(self, seconds):
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        self.last_usage = answer or self.last_usage
        return answer

    def judge(self):
        self.judged += 1


class Saver:
    """Moves no bytes any more after so many looks."""

    checkpoint_nbytes, pending = FILE, None

    def __init__(self, moves=10**9):
        self.unfinished, self._moves, self.engine = [], moves, self

    def stalled(self, begin):
        self._moves -= 1
        return self._moves < 0


def taken(files, uncommitted=(), newest=-1, keeps=()):
    return Usage(frozenset(uncommitted), files * FILE, dict.fromkeys(keeps, "a tag"), len(keeps) * FILE, newest=newest)


def storage(keeper, saver=None, files=3, rank=0, size=1):
    world = OneRank()
    world.rank, world.size = rank, size
    world.broadcast = lambda value: value
    fields = types.SimpleNamespace(field=lambda name: FIELD)
    events = types.SimpleNamespace(flush=lambda: None, warn=warned.append)
    made = Storage(files * FILE, fields, world, keeper, events)
    made.open(saver or Saver(), Latest(2) | Tagged(), lambda: None)
    return made


warned: list[str] = []
proposed: list[int] = []
FIELD = types.SimpleNamespace(agreed=0, propose=proposed.append)


@pytest.fixture(autouse=True)
def forgotten():
    warned.clear()
    proposed.clear()
    FIELD.agreed = 0


def test_an_answer_that_is_late_lets_no_checkpoint_in():
    """The newest answer that is there may not know of the checkpoint that was handed over last."""
    keeper = Keeper(taken(2), None, None, taken(3), taken(2, newest=1))
    one = storage(keeper)
    one.admit()
    assert one.hands_over(1) and keeper.answers[0] is None
    one.admit()
    assert keeper.answers == [taken(2, newest=1)]


def test_a_run_with_room_to_spare_is_not_looked_at_each_time():
    keeper = Keeper(taken(2))
    one = storage(keeper, files=9)
    one.admit()
    before = keeper.questions
    for step in range(1, 8):
        assert one.has_room() and one.hands_over(step)
    assert keeper.questions == before
    assert not one.has_room(), "7 more than the 2 that were there"


@pytest.mark.slow
def test_a_rule_is_asked_again_while_training_waits():
    """Somebody may have removed a tag."""
    keeper = Keeper(*[taken(3)] * 70, taken(2))
    one = storage(keeper)
    before = keeper.judged
    one.admit()
    assert keeper.judged > before and one.hands_over(1)


def test_a_wait_in_which_nothing_moves_ends_with_an_error():
    one = storage(Keeper(taken(3, uncommitted=[7])), Saver(moves=3))
    with pytest.raises(WaitError, match=r"storage=: expected room for a checkpoint of 1 kB in 3 kB; found 3 kB taken"):
        one.admit()


def test_a_full_run_is_proposed_and_told_of_once():
    keeper = Keeper(taken(3, keeps=[1, 2, 3]))
    one = storage(keeper)
    assert one.leaves_out() and not one.hands_over(9)
    assert one.propose(12, None) == 12 and proposed[-1] == 1
    assert one.propose(None, None) == 0 and len(warned) == 1 and "step 1 (a tag)" in warned[0]
    keeper.answers = [taken(2, keeps=[1, 2])]
    one.admit()
    assert one.propose(15, None) == 0 and proposed[-1] == 0


def test_a_step_that_is_skipped_for_another_reason_is_not_told_as_full():
    """As with ``Engine(when_full="skip")``. Every rank knows the reason, because all have agreed on it."""
    one = storage(Keeper(taken(2)), rank=1, size=2)
    one.skips(6)
    assert not one.has_skipped(6)
    FIELD.agreed = 1
    one.skips(0)
    one.skips(9)
    assert one.has_skipped(9) and not one.has_skipped(6)


def test_other_ranks_neither_look_nor_wait():
    keeper = Keeper(taken(9))
    one = storage(keeper, rank=1, size=2)
    asked = keeper.questions
    one.admit()
    assert one.hands_over(1) and one.has_room() and one.propose(3, None) == 0 and not one.leaves_out()
    assert keeper.questions == asked
