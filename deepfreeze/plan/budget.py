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
from deepfreeze.plan.never import NEVER
from deepfreeze.plan.observation import Observation
from deepfreeze.plan.pccheck import Search, Setting, Tried
from deepfreeze.plan.policy import NO_WISH, Reason, Wish
from deepfreeze.plan.trial_order import TrialOrder
from deepfreeze.plan.trial_results import TrialResults
from deepfreeze.plan.trial_watch import TrialWatch

_SPARE, _STEPS = 0.02, 2000  # the search may take this part of so many steps
_PROFILED = 2  # checkpoints that may be on their way while the training is profiled
_REPEATS = 2  # of a trial that was disturbed
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
        self._known: tuple[Tried, ...] = ()  # the trials of an earlier job that was killed in its search
        self._searched = False  # the ranks have agreed on the setting
        self._search: Search | None = None  # on rank 0
        self._results = TrialResults()
        self._number = self._obeyed = 0  # of the newest order that this rank has given, and of the one that it obeys
        self._watch: TrialWatch | None = None
        self._trial: tuple[TrialOrder, int] | None = None  # the present order, and the step from which it counts
        self._together: list[tuple[int, int]] = []  # the steps, from one to another, of trials with several at once
        self._repeats = 0  # of the present trial
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
            if found is not None:
                other = found.conditions.difference(conditions) or found.limits.difference(limits)
                if other is None:
                    self._take_over(found)
        same = found is not None and found.limits == limits
        kept = found.auto.to_json() if found is not None and found.auto is not None and same else None
        # During the search the number is the same in each ``fit``, whatever is being tried, or the profile would be forgotten.
        uncommitted = self._uncommitted if self._searched else limits.most.uncommitted
        message = self._auto.begin(conditions, uncommitted, step, kept)
        if damage is not None:
            return "warning", damage
        if other is not None:
            return "info", f"the training and its engine are measured again, because {other}"
        return message

    def _take_over(self, found: BudgetSection) -> None:
        """Goes on with what an earlier job of the run, or ``deepfreeze tune``, has found."""
        if found.chosen is not None and found.auto is not None:
            self._found, self._searched, self.setting = found, True, found.chosen
        else:  # it was killed in its search
            self._known = found.tried

    def _forget(self) -> None:
        """Drops all results of searches, which hold no more."""
        limits = self._known_limits()
        # As few as serve a profile: the engine finds memory for as many captures as may be uncommitted, beside the training.
        self.setting = Setting(limits.most.writers, 1, min(_PROFILED, limits.most.uncommitted))
        self._auto = Auto(self.overhead, self.mtbf)
        self._conditions, self._found, self._search, self._searched = None, None, None, False
        self._known = ()
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
        if self._auto.profile is None:
            wish = self._auto.observe(observation)
            if self._auto.profile is None and self._trial is None:
                return wish
            if self._auto.profile is not None and observation.rank == 0:
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
        return Search(limits.most, profile.iteration, time, limits.behind, self._known)

    def _take(self, watch: TrialWatch) -> None:
        """Takes in what a trial has shown."""
        self._watch = None
        tried = self._results.add(watch)
        search = self._search
        if search is None:
            return
        if watch.disturbed and not watch.failed and self._repeats < _REPEATS:
            self._repeats += 1
            search.again()
            return
        self._repeats = 0
        if tried is None:
            search.fail()
        else:
            search.add(tried)

    def _give_order(self, search: Search) -> None:
        """Proposes the next trial, or the setting that has won, to all ranks."""
        self._number += 1
        trial = search.trial
        if trial is not None:
            apart = min(self._longest_execution, _MOST_APART)
            order = TrialOrder(self._number, trial.setting, trial.checkpoints, apart)
        else:
            order = TrialOrder(self._number, search.chosen or self._least_setting())
        self.order = order.word

    def _least_setting(self) -> Setting:
        """The setting where no trial has shown anything: the one that needs least."""
        limits = self._known_limits()
        return Setting(limits.most.writers, 1, min(1 + limits.behind, limits.most.uncommitted))

    def obey(self, word: int, step: int) -> None:
        """See ``TuningPolicy``."""
        order = TrialOrder.of(word)
        self._obeyed, self._number, self.setting = order.number, max(self._number, order.number), order.setting
        profile = self._auto.profile
        if order.checkpoints:
            self._trial = order, step
            if order.setting.uncommitted > 1:
                self._together.append((step, order.last_step(step)))
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

    def is_trial(self, step: int) -> bool:
        """See ``TuningPolicy``."""
        return any(since < step <= last for since, last in self._together)

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
            chosen=search.chosen,
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
