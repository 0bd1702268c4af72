"""Which checkpoint gives way where there is no room, and that all ranks say the same: ``ReplacingSteps`` with ranks that are played."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest

from deepfreeze.plan.every import EverySteps
from deepfreeze.plan.schedule import Schedule
from deepfreeze.training.part import Saving
from deepfreeze.training.parts.full import ReplacingSteps
from tests.support.played_ranks import PlayedRanks
from tests.support.seed import SEED


class Saver:
    """A rank's checkpoints: the oldest is being written, the others wait. ``begun``: how many of the oldest are being written."""

    def __init__(self, most: int) -> None:
        self.most, self.begun, self.pending, self.engine = most, 1, None, self
        self.under_way: list[int] = []
        self.held: int | None = None
        self.given_up: list[tuple[int, int]] = []

    def has_room(self, armed: bool) -> bool:
        return len(self.under_way) + armed < self.most

    def hold(self, step: int | None) -> bool:
        self.held = step if step in self.under_way[max(1, self.begun) :] else None
        return self.held is not None

    def replace(self, step: int, by: int) -> None:
        assert step == self.held and step < by, "every rank holds what it gives up"
        self.under_way.remove(step)
        self.held = None
        self.given_up.append((step, by))

    def commit(self) -> None:
        if self.under_way and self.under_way[0] != self.held:
            self.under_way.pop(0)


class Ranks:
    """Ranks that train in step, each with a saver of its own. They meet after each execution, or only sometimes."""

    def __init__(self, world: int, most: int, every: int, steps: int = 1) -> None:
        self.played = PlayedRanks(world)
        self.savers = [Saver(most) for _ in range(world)]
        self.schedules = [Schedule(EverySteps(every), 0, True) for _ in range(world)]
        self.step, self.steps, self.skipped = 0, steps, []
        self.position, storage = SimpleNamespace(epoch_is_over=False), SimpleNamespace(has_room=lambda: True)
        self.all = []
        for rank, saver in enumerate(self.savers):
            self.all.append(ReplacingSteps(self.played.begun(rank, position=self.position, storage=storage)))
            self.all[rank].opens(saver, None)
        self.captured: list[int] = []

    def execute(self, meets: bool = True, counts: bool = True, pauses: bool = False, keeps: bool = False) -> None:
        """One execution on all ranks. ``counts``: the optimizer has counted its steps; ``keeps``: what it captures gives way to none."""
        self.step += self.steps if counts else 0
        taken = set()
        for saver, schedule in zip(self.savers, self.schedules, strict=True):
            done = schedule.ended(self.step)
            if done.captured is not None:
                saver.under_way.append(done.captured)
                schedule.taken(done.captured)
            taken.add((done.captured, done.skipped))
        ((captured, skipped),) = taken
        if keeps and captured is not None:
            for part in self.all:
                part.saves(Saving(captured, stays=True))
        self.captured += [captured] if captured is not None else []
        self.skipped += [skipped] if skipped is not None else []
        if meets:
            self.played.meet()
        self.position.epoch_is_over = pauses
        found = set()
        for part, schedule in zip(self.all, self.schedules, strict=True):
            schedule.aim(0)
            found.add((part.gives_up(schedule), schedule.target))
        assert len(found) == 1, "all ranks do the same"
        for part, schedule in zip(self.all, self.schedules, strict=True):
            assert part.proposes(0, schedule, self.steps) == 0
        assert len({tuple(saver.given_up) for saver in self.savers}) == 1


def test_the_newest_that_waits_gives_way_to_the_one_that_is_due():
    ranks = Ranks(world=2, most=3, every=2)
    for _ in range(12):
        ranks.execute()
    (saver, _) = ranks.savers
    assert saver.given_up and saver.under_way[0] == 2, "the oldest stays"
    assert saver.under_way[-1] == 12 and all(by > step for step, by in saver.given_up)
    assert {by for _, by in saver.given_up} <= set(ranks.captured), "what it gives way to is there"
    assert sorted(ranks.captured + ranks.skipped) == [2, 4, 6, 8, 10, 12]


@pytest.mark.parametrize("who", [0, 1])
def test_what_one_rank_has_begun_to_write_gives_way_on_none(who):
    ranks = Ranks(world=2, most=2, every=2)
    ranks.savers[who].begun = 9
    for _ in range(12):
        ranks.execute()
    assert ranks.savers[0].given_up == [] and ranks.captured == [2, 4] and ranks.skipped == [6, 8, 10, 12]


def test_a_pause_lets_the_held_one_go_on_one_rank_alone():
    """Rank 0 validates. It may begin to write then, so nothing is given up, on any rank."""
    ranks = Ranks(world=2, most=3, every=2)
    while ranks.savers[0].held is None:
        ranks.execute()
    ranks.all[0].pauses()
    ranks.savers[0].begun = 9
    for _ in range(8):
        ranks.execute()
    assert [saver.given_up for saver in ranks.savers] == [[], []] and ranks.skipped


def test_an_epochs_last_checkpoint_and_one_that_was_asked_for_stay():
    ranks = Ranks(world=1, most=3, every=2)
    for _ in range(12):
        ranks.execute(keeps=True)
    assert ranks.savers[0].given_up == [] and ranks.captured == [2, 4, 6] and ranks.skipped == [8, 10, 12]


def test_nothing_gives_way_after_an_epochs_last_execution():
    """No step may follow, so what it would give way to might never come."""
    ranks = Ranks(world=1, most=3, every=2)
    for _ in range(12):
        ranks.execute(pauses=True)
    assert ranks.savers[0].given_up == [] and ranks.captured == [2, 4, 6] and ranks.skipped == [8, 10, 12]


def test_ranks_that_meet_seldom_answer_each_proposal_once():
    """As in hand-written loops, and where gradients are accumulated: executions that count no step, and old answers."""
    print(f"seed {SEED} (DEEPFREEZE_TEST_SEED)")
    choose = random.Random(SEED)
    given_up = 0
    for _ in range(200):
        ranks = Ranks(world=choose.choice([1, 2, 3]), most=choose.choice([2, 3, 4]), every=choose.choice([1, 2, 3, 5]))
        for _ in range(60):
            near = any(schedule.within(1) for schedule in ranks.schedules)
            ranks.execute(meets=near or choose.random() < 0.3, counts=choose.random() < 0.7)
            for saver in ranks.savers:
                if choose.random() < 0.1:
                    saver.commit()
                saver.begun = choose.choice([1, 1, 2])
            (lost,) = {tuple(saver.given_up) for saver in ranks.savers}
            assert len({step for step, _ in lost}) == len({by for _, by in lost}) == len(lost)
        given_up += len(lost)
        assert not set(ranks.skipped) & {by for _, by in lost}, "nothing was given up for a step that is skipped"
    assert given_up > 100
