"""A training in simulated time: ranks with policies, a clock and a store of their own, but the product's ``Schedule``."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from deepfreeze.plan.auto_section import Decided
from deepfreeze.plan.budget import Budget
from deepfreeze.plan.observation import Observation, Progressed
from deepfreeze.plan.policy import LearningPolicy, TuningPolicy, parts
from deepfreeze.plan.schedule import Schedule
from tests.support.simulated_store import Store


@dataclass
class Costs:
    """What steps and checkpoints take, in seconds, as functions of the step. ``copy``: added to the captured step; ``writing``: added to
    the steps up to the commit, in all; ``persist``: from the hand-over to the commit; ``noise``: relative standard deviation of a step."""

    iteration: Callable[[int], float] = lambda step: 0.1
    copy: Callable[[int], float] = lambda step: 0.01
    writing: Callable[[int], float] = lambda step: 0.0
    persist: Callable[[int], float] = lambda step: 0.05
    noise: float = 0.0
    fails: bool = False  # no checkpoint is ever committed
    cpu: float = 0.001  # CPU seconds of a checkpoint's copy, and of its engine


@dataclass
class Rank:
    """One rank: its policy, what things cost there, and its checkpoints under way: step -> seconds until the commit."""

    policy: object
    costs: Costs
    rank: int = 0
    seed: int = 0
    store: Store | None = None  # whose commits count in place of ``costs.persist``; training waits for it
    pauses: frozenset[int] = frozenset()  # steps before which a minute passes, as for a validation
    under_way: dict[int, float] = field(default_factory=dict)
    seconds: float = 0.0  # of all steps, with everything that checkpoints have added
    plain: float = 0.0  # of the same steps without checkpoints

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed + 1000 * self.rank)
        self._blocking = 0.0
        self._since = 0
        self._told = 0

    def execute(self, step: int, captured: int | None) -> Observation:
        """One step."""
        if self.store is not None:
            return self._execute_with(self.store, step, captured)
        costs = self.costs
        plain = costs.iteration(step) * max(0.2, self.random.gauss(1.0, costs.noise))
        seconds = plain + sum(
            min(1.0, costs.iteration(step) / max(costs.persist(one), 1e-9)) * costs.writing(one)
            for one in self.under_way
        )
        reports = []
        if captured is not None:
            seconds += costs.copy(captured)
        for one in list(self.under_way):
            self.under_way[one] -= seconds
            if self.under_way[one] <= 0:
                del self.under_way[one]
                took = costs.persist(one)
                there = None if costs.fails else took
                reports.append(Progressed(one, there, there, there, costs.fails, copy=costs.cpu, cpu=costs.cpu))
        if captured is not None:
            self.under_way[captured] = costs.persist(captured)
        blocking, self._blocking = self._blocking, 1e-5
        self.seconds += seconds
        self.plain += plain
        return self._observed(step, seconds, captured, blocking, reports, len(self.under_way))

    def _execute_with(self, store: Store, step: int, captured: int | None) -> Observation:
        waited = store.now
        while captured is not None and store.under_way >= store.setting.uncommitted:
            store.wait()
        waited = store.now - waited
        plain = self.costs.iteration(step) * max(0.2, self.random.gauss(1.0, self.costs.noise))
        seconds = plain + (self.costs.copy(captured) if captured is not None else 0.0)
        paused = step in self.pauses
        seconds += 60.0 * paused
        store.advance(store.now + seconds)
        if captured is not None:
            store.hand(captured)
        reports = []
        for one, handed, end, failed in store.done[self._told :]:
            took = None if failed else end - handed
            reports.append(Progressed(one, took, took, took, failed, copy=self.costs.cpu, cpu=self.costs.cpu))
        self._told = len(store.done)
        self.seconds += seconds + waited
        self.plain += plain
        return self._observed(step, seconds, captured, waited, reports, store.under_way, paused)

    def _observed(
        self,
        step: int,
        seconds: float,
        captured: int | None,
        blocking: float,
        reports: list[Progressed],
        in_flight: int,
        paused: bool = False,
    ) -> Observation:
        return Observation(
            step=step,
            steps=1,
            seconds=seconds,
            captured=captured,
            blocking=blocking,
            reports=reports,
            in_flight=in_flight,
            nbytes=1000,
            rank=self.rank,
            paused=paused,
            epoch_steps=1000,
        )


@dataclass
class Training:
    """All ranks, in step. ``captured``: the captured steps; ``intervals``: (step, agreed interval), in the order of the agreements."""

    ranks: list[Rank]
    step: int = 0
    captured: list[int] = field(default_factory=list)
    intervals: list[tuple[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._schedules = [Schedule(rank.policy, self.step, True) for rank in self.ranks]
        self._proposed = [(0, 0)] * len(self.ranks)
        self._since = [0] * len(self.ranks)
        self._agreed = 0
        self._orders = [0] * len(self.ranks)
        self._obeyed = 0
        for rank in self.ranks:
            self._tune(rank)

    @staticmethod
    def _tune(rank: Rank) -> None:
        tuning = next((part for part in parts(rank.policy) if isinstance(part, TuningPolicy)), None)
        if rank.store is not None and tuning is not None and tuning.setting is not None:
            rank.store.setting = tuning.setting

    def run(self, steps: int) -> None:
        """So many further steps."""
        for _ in range(steps):
            self._execute()

    def _execute(self) -> None:
        self.step += 1
        agreed, soon = (max(values) for values in zip(*self._proposed, strict=True))
        order, decided = max(self._orders), set()
        for number, (rank, schedule) in enumerate(zip(self.ranks, self._schedules, strict=True)):
            done = schedule.ended(self.step)
            if done.captured is not None:
                schedule.taken(done.captured)
            learning = next(part for part in parts(rank.policy) if isinstance(part, LearningPolicy))
            wish = learning.observe(rank.execute(self.step, done.captured))
            if self._since[number] and schedule.captured >= self._since[number]:
                self._since[number] = 0
            if not self._since[number] and wish.now:
                self._since[number] = self.step + 1
            self._proposed[number] = (wish.interval, self._since[number])
            if isinstance(learning, TuningPolicy):
                self._orders[number] = learning.order
                if order != self._obeyed:
                    near = schedule.within(1)
                    learning.obey(order, schedule.decided if near else schedule.step)
                    self._tune(rank)
                    if not near:
                        schedule.reconsider()
            if agreed not in (0, self._agreed):
                learning.agree(agreed, schedule.decided)
                decided.add(schedule.decided)
            schedule.aim(0)
            schedule.serve(soon, 1)
        assert len(decided) < 2, "ranks have decided on different steps"
        self._obeyed = order
        if decided:
            planned = next((part for part in parts(self.ranks[0].policy) if isinstance(part, Budget)), None)
            if planned is not None and (reason := planned.reason()) is not None:
                before = self._agreed or None
                planned.decided(Decided(min(decided), before, agreed, reason.name, 0), reason)
            self._agreed = agreed
            self.intervals.append((decided.pop(), agreed))
        targets = {schedule.target for schedule in self._schedules}
        assert len(targets) == 1, f"ranks will capture different steps: {targets}"
        newest = {schedule.captured for schedule in self._schedules}
        assert len(newest) == 1, f"ranks have captured different steps: {newest}"
        if (step := newest.pop()) == self.step:
            self.captured.append(step)
