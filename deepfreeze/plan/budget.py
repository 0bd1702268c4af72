"""The policy that is told what the user can spare, and finds the rest: how many checkpoints are on their way at once, with how many
writers, and how often they are taken (PCcheck, ASPLOS 2025, section 4)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from deepfreeze import arguments
from deepfreeze.errors import CorruptError
from deepfreeze.plan.auto import Auto
from deepfreeze.plan.auto_section import Conditions, Decided, Window
from deepfreeze.plan.budget_section import SECTION, BudgetSection
from deepfreeze.plan.limits import Limits
from deepfreeze.plan.observation import Observation
from deepfreeze.plan.pccheck import Search, Setting
from deepfreeze.plan.policy import NEVER, NO_WISH, Reason, Wish
from deepfreeze.plan.trial_order import TrialOrder
from deepfreeze.plan.trial_results import TrialResults
from deepfreeze.plan.trial_watch import TrialWatch

_SPARE, _STEPS = 0.02, 2000  # the search may take this part of so many steps
_MOST_APART = 2**16 - 1  # steps of an execution that an order can name


class Budget:
    """The best checkpoints within what the user can spare: the ``memory=`` and ``storage=`` of the ``Checkpoint``, and ``overhead``.

    The first steps are timed without checkpoints, then two checkpoints, as by ``Auto``. Then the policy tries the engine: up to 38
    checkpoints, which are real ones, are taken with 1, 2, 4 and 8 writers, with 1, 2, ... of them on their way at once, and written one
    after the other or several at a time. The setting that commits checkpoints fastest stays. It takes the place of ``Engine(transfers=)``,
    and ``Engine(writers=, uncommitted=)`` are the most that is tried. The search takes at most 2 % of 2000 steps.

    The interval is then the least that keeps two bounds: training waits for no commit, and checkpoints make it at most ``overhead`` longer.
    It is measured anew from each four checkpoints on, as by ``Auto``. ``RUN/plan.json`` keeps all of it, so a job that is started again
    begins with it. ``deepfreeze tune`` finds the same before a job, and ``deepfreeze plan RUN --explain`` tells it.

    Args:
        overhead: the longest that checkpoints may make the training, as a fraction: 0.03 is 3 %. The paper's q is 1 + overhead.
        mtbf: as of ``Auto``.

    Raises ``OptionError``."""

    section = SECTION

    def __init__(self, overhead: float = 0.03, mtbf: float | None = None) -> None:
        self.overhead = arguments.fraction("Budget(overhead)", overhead)
        self.mtbf = None if mtbf is None else arguments.seconds("Budget(mtbf)", mtbf)
        self.setting: Setting | None = None
        self.order = 0
        self._auto = Auto(self.overhead, self.mtbf)
        self._conditions: Conditions | None = None
        self._limits: Limits | None = None
        self._found: BudgetSection | None = None  # what an earlier job, or ``deepfreeze tune``, has found
        self._searched = False  # the ranks have agreed on the setting
        self._search: Search | None = None  # on rank 0
        self._results = TrialResults()
        self._number = self._obeyed = 0  # of the newest order that this rank has given, and of the one that it obeys
        self._watch: TrialWatch | None = None
        self._trial: tuple[TrialOrder, int] | None = None  # the present order, and the step from which it counts
        self._longest_execution = 1  # steps
        self._nbytes = 1
        self._time_is_bounded = True

    def __str__(self) -> str:
        mtbf = "" if self.mtbf is None else f", mtbf={self.mtbf:g}"
        return f"Budget(overhead={self.overhead:g}{mtbf})"

    def take_time(self) -> None:
        """The search may take as much time as it needs: nothing else is to come of the training."""
        self._time_is_bounded = False

    def next_step(self, step: int) -> int:
        """The next step of the trial under way; without one as ``Auto``."""
        if self._trial is not None:
            order, since = self._trial
            due = order.next_step(since, step)
            return NEVER if due is None else due
        return self._auto.next_step(step) if self._searched else NEVER

    # What a training asks.

    def limit(self, limits: Limits) -> None:
        """See ``TuningPolicy``."""
        if self._limits is not None and self._limits != limits:
            self._forget()
        self._limits = limits

    def begin(
        self, conditions: Conditions, uncommitted: int, step: int, stored: Mapping[str, Any] | None
    ) -> tuple[str, str] | None:
        """See ``PlannedPolicy``."""
        limits = self._known_limits()
        self._number = self._obeyed = self.order = 0  # the orders of this training are counted anew
        self._watch = self._trial = None
        found, damage = self._section_of(stored)
        other = None
        if conditions != self._conditions:  # else it is another ``fit`` of the same training
            self._forget()
            self._conditions = conditions
            if found is not None and found.chosen is not None and found.auto is not None:
                other = found.conditions.difference(conditions) or found.limits.difference(limits)
                if other is None:
                    self._found, self._searched, self.setting = found, True, found.chosen
        kept = found.auto.to_json() if found is not None and found.auto is not None and other is None else None
        # During the search the number is the same in each ``fit``, whatever is being tried, or the profile would be forgotten.
        uncommitted = self._uncommitted if self._searched else limits.most.uncommitted
        message = self._auto.begin(conditions, uncommitted, step, kept)
        if damage is not None:
            return "warning", damage
        if other is not None:
            return "info", f"the training and its engine are measured again, because {other}"
        return message

    def _forget(self) -> None:
        """What was found holds no more."""
        limits = self._known_limits()
        self.setting = Setting(limits.most.writers, 1, limits.most.uncommitted)
        self._auto = Auto(self.overhead, self.mtbf)
        self._conditions, self._found, self._search, self._searched = None, None, None, False
        self._results = TrialResults()

    def _known_limits(self) -> Limits:
        assert self._limits is not None, "limit() comes before begin()"
        return self._limits

    @property
    def _uncommitted(self) -> int:
        assert self.setting is not None
        return self.setting.uncommitted

    @staticmethod
    def _section_of(stored: Mapping[str, Any] | None) -> tuple[BudgetSection | None, str | None]:
        if stored is None:
            return None, None
        try:
            return BudgetSection.from_json(stored), None
        except CorruptError as error:
            return None, f"{error} The training and its engine are measured again."

    def observe(self, observation: Observation) -> Wish:
        """Takes in an execution. Returns this rank's wish, which is none while settings are tried."""
        if self._searched:
            return self._auto.observe(observation)
        self._longest_execution = max(self._longest_execution, observation.steps)
        self._nbytes = max(1, observation.nbytes)
        if self._auto.profile is None and self._trial is None:
            wish = self._auto.observe(observation)
            if self._auto.profile is None:
                return wish
            if observation.rank == 0:
                self._search = self._new_search()
        if self._watch is None:
            self._results.between(observation)
        else:
            self._watch.add(observation)
            if self._watch.is_over:
                self._take(self._watch)
        waits = self._watch is not None or self._number > self._obeyed
        if self._search is not None and not waits and observation.in_flight == 0:
            self._give_order(self._search)
        return NO_WISH

    def _new_search(self) -> Search:
        limits, profile = self._known_limits(), self._auto.profile
        assert profile is not None
        time = _SPARE * _STEPS * profile.iteration if self._time_is_bounded else math.inf
        return Search(limits.most, profile.iteration, time, limits.behind)

    def _take(self, watch: TrialWatch) -> None:
        """Takes in what a trial has shown."""
        self._watch = None
        tried = self._results.add(watch)
        if self._search is None:
            return
        if tried is None:
            self._search.fail()
        else:
            self._search.add(tried)

    def _give_order(self, search: Search) -> None:
        """Proposes the next trial, or the setting that has won, to all ranks."""
        self._number += 1
        trial, best = search.trial, search.best
        if trial is not None:
            apart = min(self._longest_execution, _MOST_APART)
            order = TrialOrder(self._number, trial.setting, trial.checkpoints, apart)
        else:
            assert self.setting is not None
            order = TrialOrder(self._number, best.setting if best is not None else self._first_setting())
        self.order = order.word

    def _first_setting(self) -> Setting:
        """The setting where no trial has shown anything: the one that needs least."""
        return Setting(self._known_limits().most.writers, 1, 1)

    def obey(self, word: int, step: int) -> None:
        """See ``TuningPolicy``."""
        order = TrialOrder.of(word)
        self._obeyed, self._number, self.setting = order.number, max(self._number, order.number), order.setting
        profile = self._auto.profile
        if order.checkpoints:
            self._trial = order, step
            self._watch = TrialWatch(order, step, 0.0 if profile is None else profile.iteration)
            return
        self._trial, self._watch, self._searched = None, None, True
        results = self._results
        cost = None if profile is None or self._conditions is None else results.cost(profile, self._conditions.cores)
        self._auto.settle(order.setting.uncommitted, results.commit(order.setting), results.iteration, cost)

    @property
    def trials(self) -> int:
        """See ``TuningPolicy``."""
        return 0 if self._search is None else len(self._search.tried)

    @property
    def tunes(self) -> int | None:
        """The step from which on checkpoints are those of a trial with several on their way at once, None if no such trial is under way."""
        return None if self._trial is None or self._trial[0].setting.uncommitted == 1 else self._trial[1]

    def agree(self, interval: int, step: int) -> None:
        """The ranks have agreed on ``interval``, from ``step`` on."""
        self._auto.agree(interval, step)

    @property
    def interval(self) -> int:
        """See ``PlannedPolicy``."""
        return self._auto.interval

    @property
    def newest(self) -> Window | None:
        """See ``PlannedPolicy``."""
        return self._auto.newest

    def reason(self) -> Reason | None:
        """See ``PlannedPolicy``."""
        return self._auto.reason()

    def decided(self, decision: Decided, reason: Reason) -> None:
        """See ``PlannedPolicy``."""
        self._auto.decided(decision, reason)

    def plan(self) -> BudgetSection | None:
        """See ``PlannedPolicy``. Without an interval it has what the search has found so far."""
        conditions, search = self._conditions, self._search
        if conditions is None:
            return None
        auto = self._auto.plan()
        if search is None:
            found = self._found
            return None if found is None else found.with_auto(auto)
        best, profile = search.best, self._auto.profile
        if best is None or profile is None:
            return None
        return BudgetSection(
            conditions=conditions,
            limits=self._known_limits(),
            ended=search.ended or "training",
            iteration=profile.iteration,
            nbytes=self._nbytes,
            chosen=best.setting,
            tried=tuple(search.tried),
            auto=auto,
        )

    def ended(self) -> str | None:
        """See ``PlannedPolicy``."""
        search, left, where = self._search, self._auto.left, f"every={self}: the training ended before"
        if left is not None:
            return f"{where} an interval was chosen ({left})"
        if self._searched:
            return None
        best = search.best if search is not None else None
        if search is None or best is None:
            return f"{where} any setting of the engine was tried"
        return (
            f"{where} the engine was tuned; the best of {len(search.tried)} settings so far: {best.setting}, a checkpoint in "
            f"{best.period:.3g} s"
        )
