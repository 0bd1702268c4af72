"""The policy that measures how often a checkpoint pays, and goes on measuring (CheckFreq, FAST 2021, sections 4.2 and 4.4)."""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from deepfreeze import arguments
from deepfreeze.errors import CorruptError
from deepfreeze.plan.auto_section import AutoSection, Conditions, Decided, Window
from deepfreeze.plan.checkfreq import Bounds, Profile, algorithm_1
from deepfreeze.plan.never import NEVER
from deepfreeze.plan.observation import Observation
from deepfreeze.plan.overheads import Overhead, OverheadWindow, together
from deepfreeze.plan.policy import NO_WISH, Reason, Wish
from deepfreeze.plan.profiling import Profiling
from deepfreeze.plan.step_times import StepTimes

_TOGETHER = 4  # windows in succession after which checkpoints may be taken more often
_OTHERS = 0.75  # of the interval: checkpoints that are nearer to each other are not this policy's alone
_UNKNOWN = 0.1  # relative error of a time that was measured by another job
_SLOW_STORE = 2.0  # times as long as in the profile: such commits are the reason of a longer interval
_FASTER = 0.8  # of the profile's time of a step: below it, the training is the reason


class Auto:
    """As many checkpoints as make the training at most the fraction ``overhead`` longer, by measurement.

    The first steps are timed without checkpoints, then two checkpoints are taken and timed. From that the interval follows: as short as
    ``overhead`` allows, and long enough for one checkpoint to be committed before the next begins. It is measured anew from each four
    checkpoints on, and made longer or shorter where the training, the store or other jobs have changed. The interval of the rank that
    needs the longest holds for all. ``RUN/plan.json`` keeps it, so a job that is started again begins with it. ``deepfreeze plan RUN``
    shows it.

    Args:
        overhead: the longest that checkpoints may make the training, as a fraction: 0.035 is 3.5 %.
        mtbf: mean seconds between two failures of the whole job (not of one of its nodes). Checkpoints are then not taken more often than
            pays with so few failures (Daly's interval). None: as often as ``overhead`` allows.

    Raises ``OptionError``."""

    section = "auto"

    def __init__(self, overhead: float = 0.035, mtbf: float | None = None) -> None:
        self.overhead = arguments.fraction("Auto(overhead)", overhead)
        self.mtbf = None if mtbf is None else arguments.seconds("Auto(mtbf)", mtbf)
        self.interval = 0  # the agreed one, 0 before there is one
        self._since, self._before = 0, NEVER  # the step from which it counts, and the step that was due last before it
        self._wish = NO_WISH
        self._why: Reason | None = None
        self._conditions: Conditions | None = None
        self._uncommitted, self._cores = 1, 1.0
        self._times = StepTimes()
        self._profiling: Profiling | None = None  # None: the profile is known
        self._profile: Profile | None = None
        self._window = OverheadWindow(1, 0.0, _UNKNOWN)
        self._longest_execution = 1  # steps, in this ``fit``
        self._epoch_steps: int | None = None
        self._error = _UNKNOWN  # of the known time of a step, relative
        self._judged: list[Overhead] = []  # the windows of the present interval, four at most
        self._doubted = False  # the last window was left out
        self._commits: dict[int, float] = {}  # of the window: step -> seconds
        self._copies: dict[int, tuple[float, float]] = {}  # of the window: step -> CPU seconds of copy and engine
        self._decided: deque[Decided] = deque(maxlen=AutoSection.MOST_DECISIONS)
        self._windows: deque[Window] = deque(maxlen=AutoSection.MOST_WINDOWS)
        self._agreed: AutoSection | None = None  # the last decision's, without the histories

    def __str__(self) -> str:
        mtbf = "" if self.mtbf is None else f", mtbf={self.mtbf:g}"
        return f"Auto(overhead={self.overhead:g}{mtbf})"

    # What a training asks.

    def next_step(self, step: int) -> int:
        """The next multiple of the agreed interval, counted from the step at which it was agreed on."""
        if step < self._since:
            return self._before if step < self._before else self._since
        return NEVER if not self.interval else self._since + ((step - self._since) // self.interval + 1) * self.interval

    def begin(
        self, conditions: Conditions, uncommitted: int, step: int, stored: Mapping[str, Any] | None
    ) -> tuple[str, str] | None:
        """See ``PlannedPolicy``."""
        self._times.restart()
        self._longest_execution = 1
        found, damage = self._section_of(stored)
        # The histories are those of the run; the policy may have served another run before.
        self._decided = deque(found.decisions if found is not None else (), AutoSection.MOST_DECISIONS)
        self._windows = deque(found.windows if found is not None else (), AutoSection.MOST_WINDOWS)
        before = self._conditions
        if before == conditions and self._uncommitted == uncommitted:
            # Another ``fit`` of the same training.
            if self._profiling is not None:
                self._profiling.training_begins()
            if step < self._since:  # it goes back to an older step
                self._since, self._before = step, NEVER
            self._new_window()
            return None
        self._conditions, self._uncommitted, self._cores = conditions, uncommitted, conditions.cores
        self._profile, self._profiling, self._wish = None, Profiling(conditions.cores), NO_WISH
        self.interval, self._since, self._before, self._agreed, self._why = 0, 0, NEVER, None, None
        if damage is not None:
            return "warning", damage
        if found is None:
            other = None if before is None else before.difference(conditions)
        else:
            other = found.conditions.difference(conditions)
            if other is None:
                self._take_over(found)
        return None if other is None else ("info", f"the training is profiled again, because {other}")

    @staticmethod
    def _section_of(stored: Mapping[str, Any] | None) -> tuple[AutoSection | None, str | None]:
        """What is stored, or why it can't be read."""
        if stored is None:
            return None, None
        try:
            return AutoSection.from_json(stored), None
        except CorruptError as error:
            return None, f"{error} The training is profiled again."

    def _take_over(self, found: AutoSection) -> None:
        """Goes on with what an earlier job of the run has found."""
        worked_out = self._terms(found.profile).interval
        same = (found.overhead, found.mtbf, found.uncommitted) == (self.overhead, self.mtbf, self._uncommitted)
        interval = min(found.interval, 2 * worked_out) if same else worked_out
        self._profile, self._profiling, self._error = found.profile, None, _UNKNOWN
        self._want(interval, "resumed")
        self._new_window()

    def observe(self, observation: Observation) -> Wish:
        """Takes in an execution. Returns this rank's wish."""
        self._longest_execution = max(self._longest_execution, observation.steps)
        if self._profiling is not None and observation.captured is not None:
            self._profiling.captured(observation.captured)
            self._wish = replace(self._wish, now=False)
        for report in observation.reports:
            if self._profiling is not None:
                self._profiling.progressed(report)
            elif report.committed is not None:
                self._commits[report.step] = report.committed
                self._copies[report.step] = (report.copy or 0.0, report.cpu or 0.0)
        timed = self._times.add(observation)
        if timed is None:
            return self._bounded_wish()
        if self._profiling is not None:
            self._epoch_steps = observation.epoch_steps or self._epoch_steps
            self._profiling.add(timed, self._epoch_steps)
            self._profile = self._profiling.profile(observation.nbytes)
            self._wish = replace(self._wish, now=self._profiling.probe)
            if self._profile is not None:
                self._error = self._profiling.error
                self._profiling = None
                self._decide_first(self._profile)
        else:
            found = self._window.add(timed)
            if found is not None:
                self._judge(found, timed.step)
                self._commits, self._copies = {}, {}
        return self._bounded_wish()

    def _bounded_wish(self) -> Wish:
        """An execution gives one checkpoint, so the interval has its steps at least."""
        if self._wish.interval and self._wish.interval < self._longest_execution:
            return replace(self._wish, interval=self._longest_execution)
        return self._wish

    def agree(self, interval: int, step: int) -> None:
        """The ranks have agreed on ``interval``, from ``step`` on."""
        before = self.next_step(step - 1) if step > 0 else NEVER
        self._before = before if before <= step else NEVER
        self.interval, self._since = interval, step
        self._judged = []
        self._new_window()

    def reason(self) -> Reason | None:
        """See ``PlannedPolicy``."""
        return self._why

    def decided(self, decision: Decided, reason: Reason) -> None:
        """See ``PlannedPolicy``."""
        assert self._conditions is not None
        self._decided.append(decision)
        self._agreed = AutoSection(
            conditions=self._conditions,
            overhead=self.overhead,
            mtbf=self.mtbf,
            uncommitted=self._uncommitted,
            interval=decision.after,
            step=decision.step,
            reason=decision.reason,
            rank=decision.rank,
            profile=reason.profile,
            terms=reason.terms,
            decisions=(),
            windows=(),
        )

    @property
    def profile(self) -> Profile | None:
        """This rank's measurements, None before the profile is complete."""
        return self._profile

    def settle(self, uncommitted: int, commit: float | None, iteration: float | None, cost: float | None) -> None:
        """The engine has another setting from now on: ``uncommitted`` checkpoints may be on their way at once. The interval is chosen anew,
        by what was measured since the profile, in seconds, as far as it is not None: ``commit``, from a hand-over to its commit with so
        many on their way; ``iteration``, a step without checkpoints; ``cost``, by how much a checkpoint lengthens the training."""
        self._uncommitted = uncommitted
        self._times.restart()
        profile = self._profile
        if profile is not None:
            cost = profile.cost if cost is None else cost
            self._decide_first(
                replace(profile, persist=commit or profile.persist, iteration=iteration or profile.iteration, cost=cost)
            )

    @property
    def newest(self) -> Window | None:
        """The overhead that was measured last on this rank, None before the first time."""
        return self._windows[-1] if self._windows else None

    def plan(self) -> AutoSection | None:
        """See ``PlannedPolicy``."""
        if self._agreed is None:
            return None
        return replace(self._agreed, decisions=tuple(self._decided), windows=tuple(self._windows))

    def ended(self) -> str | None:
        """See ``PlannedPolicy``."""
        return (
            None
            if self.left is None
            else f"every={self}: the training ended before an interval was chosen ({self.left})"
        )

    @property
    def left(self) -> str | None:
        """The missing part of the profile, in words; None if the profile is complete."""
        return None if self._profiling is None else self._profiling.left

    # The interval.

    def _decide_first(self, profile: Profile) -> None:
        self._profile = profile
        terms = self._terms(profile)
        self._want(terms.interval, "failures" if terms.decided_by == "failures" else "profile")
        self._new_window()

    def _judge(self, found: Overhead, step: int) -> None:
        """Changes the wish if the window shows that the interval is too short, or longer than needed."""
        self._doubted = not found.steady and not self._doubted
        if self._doubted:
            return  # one window tells too little; a training whose steps always differ is judged all the same
        self._windows.append(Window(step, self.interval, found.mean, found.low, found.high))
        if found.distance < _OTHERS * self.interval:
            self._judged = []
            return  # other policies ask for most of the checkpoints: another interval would not change what they cost
        self._judged = [*self._judged[1 - _TOGETHER :], found]
        profile = self._measured(found)
        mean, low, high = self._surely(found)
        longer = self._longer(found, profile, mean, low)
        if longer is not None:
            self._grow(*longer, profile)
        elif len(self._judged) == _TOGETHER and high < self.overhead / 2:
            self._judged = []
            self._shorten(profile)

    def _surely(self, found: Overhead) -> tuple[float, float, float]:
        """The mean of the overhead and the range in which it surely is: those of this window, or of the last windows together if this one
        may be within the budget."""
        mean, low, high = found.mean, found.low, found.high
        several = len(self._judged) == _TOGETHER
        if several and low <= self.overhead:
            mean, low, high = together(self._judged)
        if not found.plain:
            # The budget is doubtful until there are plain steps, and a longer interval has some.
            low = mean if several else (mean + low) / 2
        return mean, low, high

    def _longer(self, found: Overhead, profile: Profile, mean: float, low: float) -> tuple[int, str] | None:
        """A longer interval and the reason for it: checkpoints cost more than the budget, or commits take longer than the interval, or
        failures are rarer. None if the interval is long enough."""
        assert self._profile is not None
        if found.stale:
            return 2 * self.interval, "training"  # until there are plain steps, which tell what a step takes now
        slow = profile.persist >= _SLOW_STORE * self._profile.persist
        if low > self.overhead:
            faster = profile.iteration < _FASTER * self._profile.iteration
            return math.ceil(self.interval * mean / self.overhead), _cause(slow, faster)
        terms = self._terms(profile)
        if slow and terms.by_commit > self.interval:
            return terms.by_commit, "store"
        by_failures = terms.by_failures or 0
        return (by_failures, "failures") if by_failures > self.interval * (1 + self.overhead) else None

    def _shorten(self, profile: Profile) -> None:
        shorter = max(self._terms(profile).interval, self.interval * 4 // 5)
        if shorter < self.interval:
            self._profile = profile
            self._want(shorter, "slack")

    def _terms(self, profile: Profile) -> Bounds:
        return algorithm_1(profile, self.overhead, self._uncommitted, self.mtbf)

    def _measured(self, found: Overhead) -> Profile:
        """The profile as the window shows it. Where the window's overhead is within noise, a checkpoint costs its CPU time."""
        assert self._profile is not None
        copy, cpu, persist = self._profile.copy, 0.0, self._profile.persist
        if self._copies:
            copy = statistics.mean(one for one, _ in self._copies.values())
            cpu = statistics.mean(one for _, one in self._copies.values())
        if self._commits:
            persist = statistics.mean(self._commits.values())
        cost = found.cost if found.low > 0 else (copy + cpu) / self._cores
        return replace(self._profile, iteration=found.iteration, copy=copy, persist=persist, cost=cost)

    def _grow(self, wanted: int, reason: str, profile: Profile) -> None:
        self._profile = profile
        self._want(min(wanted, 2 * self.interval), reason)

    def _want(self, interval: int, reason: str) -> None:
        assert self._profile is not None
        terms = self._terms(self._profile)
        self._wish = Wish(interval=min(interval, NEVER))
        self._why = Reason(reason, self._profile, terms)

    def _new_window(self) -> None:
        iteration = self._profile.iteration if self._profile is not None else 0.0
        self._window = OverheadWindow(max(1, self.interval), iteration, self._error)
        self._commits, self._copies = {}, {}


def _cause(slow: bool, faster: bool) -> str:
    """Why checkpoints cost more than the budget allows: the store is slow, or the training has become faster, or the copies cost more."""
    return "store" if slow else "training" if faster else "copy"
