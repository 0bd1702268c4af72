"""What the policy of one training learns: it is told of each execution, wishes, and is told of what the ranks have agreed on."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from numbers import Integral
from typing import Any

from deepfreeze.errors import OptionError
from deepfreeze.events.event import Decision, Measured
from deepfreeze.events.events import Events
from deepfreeze.freeze.saver import Saver
from deepfreeze.plan.auto_section import Conditions, Decided
from deepfreeze.plan.fit_position import FitPosition
from deepfreeze.plan.observation import Observation, Progressed
from deepfreeze.plan.policy import NEVER, LearningPolicy, PlannedPolicy, Policy, Reason, TuningPolicy, Wish, parts
from deepfreeze.plan.schedule import Execution, Schedule
from deepfreeze.ranks.agreement import Agreement
from deepfreeze.ranks.world import World, each
from deepfreeze.training.budget_kept import beyond
from deepfreeze.training.engine_limits import EngineLimits
from deepfreeze.training.plan_keeper import PlanKeeper
from veloc_bindings import OK, SUPERSEDED, Report

_OBSERVE = "a policy whose observe() returns a deepfreeze.plan.Wish, with an interval from 0 to deepfreeze.plan.NEVER"
_AGREE = "a policy whose agree() takes each interval that the ranks agree on"


class Wishes:
    """The wishes of one rank's policy during one training. The training thread calls all methods, between two executions. With a policy
    that does not observe, and has no part that does, they do nothing."""

    def __init__(
        self,
        policy: Policy,
        agreement: Agreement,
        world: World,
        keeper: PlanKeeper,
        position: FitPosition | None = None,
        clock: Callable[[], float] = time.perf_counter,
        limits: EngineLimits | None = None,
    ) -> None:
        """Takes two fields of the control word if ``policy`` observes, and a third one if it tries settings of the engine. ``keeper``:
        keeps what the policy has found; ``position``: of the ``fit``, None in a loop; ``clock``: seconds; ``limits``: of the engine's
        settings, for a policy that tries some."""
        self._limits = limits
        self._world, self._keeper, self._position = world, keeper, position
        self._planned = next((part for part in parts(policy) if isinstance(part, PlannedPolicy)), None)
        self._newest = self._planned.newest if self._planned is not None else None
        self._tuning = self._planned if isinstance(self._planned, TuningPolicy) else None
        self._agreement, self._signals = agreement, agreement.signals
        self._policies = [part for part in parts(policy) if isinstance(part, LearningPolicy)]
        if self._policies:
            self._interval, self._capture = agreement.field("interval"), agreement.field("capture")
        if self._tuning is not None:
            self._order = agreement.field("tuning")
            self._obeyed = 0  # the word of the order that was agreed on last
            self._trials = self._tuning.trials
        # The interval that the policy has been told of.
        self._agreed = self._planned.interval if self._planned is not None else 0
        self._since = 0  # this rank wishes for a checkpoint of this step or a later one; 0: it does not
        self._captured = -1  # the newest captured step that the policy has been told of
        self._clock = clock
        self._went_on = clock()  # when training went on after the last execution
        self._ended = self._went_on  # when the last execution ended
        self._before = self._ended  # when the execution before the last one ended
        self._reports: list[Progressed] = []
        self._wished = 0  # the interval that was proposed last
        self._steps = 1  # of the last execution

    @property
    def keeps_plan(self) -> bool:
        """Whether the policy keeps a plan."""
        return self._planned is not None

    @property
    def tunes(self) -> bool:
        """True if the policy tries settings of the engine."""
        return self._tuning is not None

    def is_trial(self, step: int) -> bool:
        """See ``TuningPolicy.is_trial``."""
        return self._tuning is not None and self._tuning.is_trial(step)

    def begin(self, conditions: Conditions, saver: Saver, step: int) -> None:
        """Collective. To be called when the engine is open, at ``step``, before the policy is asked for the next step to capture.
        ``conditions``: of this training, as this rank sees them."""
        self._saver = saver
        if self._tuning is not None and self._limits is not None:
            self._tuning.limit(self._limits.of(saver))
        if self._planned is not None:
            self._keeper.begin(self._planned, conditions, saver.most_uncommitted, step)
            self._agreed, self._newest = self._planned.interval, self._planned.newest
        if self._tuning is not None:
            self._tune(self._tuning)

    def _tune(self, tuning: TuningPolicy) -> None:
        """Gives the engine the setting that the ranks have agreed on."""
        setting = tuning.setting
        if setting is not None:
            self._saver.tune(setting.writers, setting.transfers, setting.uncommitted)

    def execution_ended(self) -> None:
        """To be called first after each execution."""
        if self._policies:
            self._before, self._ended = self._ended, self._clock()

    def goes_on(self) -> None:
        """To be called last after each execution, when training goes on."""
        if self._policies:
            self._went_on = self._clock()

    def enter(self, reports: Sequence[Report]) -> None:
        """Takes in the engine's new reports, for the next observation."""
        if self._policies:
            self._reports += [_progressed(report) for report in reports if report.step >= 0]

    def observe(self, schedule: Schedule, done: Execution, saver: Saver, events: Events) -> None:
        """Tells the policy of the execution ``done``, after which ``schedule`` stands, and proposes its wish to the other ranks. If the
        policy raises on one rank, or wishes for something that is no wish, training ends on all ranks; ``OptionError`` if it is alone."""
        if not self._policies:
            return
        try:
            self._observe(schedule, done, saver, events)
        except OptionError as error:
            if self._world.size == 1:
                raise
            self._agreement.fail(error)

    def _observe(self, schedule: Schedule, done: Execution, saver: Saver, events: Events) -> None:
        reports, self._reports = self._reports, []
        self._steps = done.steps
        captured = schedule.captured if schedule.captured > self._captured else None
        self._captured = schedule.captured
        observation = Observation(
            step=schedule.step,
            steps=done.steps,
            seconds=self._ended - self._went_on,
            captured=captured,
            blocking=self._went_on - self._before,
            reports=reports,
            in_flight=len(saver.unfinished) + (saver.pending is not None),
            nbytes=saver.nbytes,
            rank=self._world.rank,
            signals=self._signals.take(),
            paused=self._position is not None and self._position.begins_epoch,
            epoch_steps=self._position.epoch_steps(done.steps) if self._position is not None else None,
        )
        wishes = [self._wish(policy, observation) for policy in self._policies]
        self._wished = max(wish.interval for wish in wishes)
        self._interval.propose(self._wished)
        if self._since and schedule.captured >= self._since:
            self._since = 0
        if not self._since and any(wish.now for wish in wishes):
            self._since = schedule.step + 1
        self._capture.propose(self._since)
        if self._tuning is not None:
            self._order.propose(self._tuning.order)
            if self._tuning.trials != self._trials:
                self._trials = self._tuning.trials
                self._keeper.keep(self._tuning, decided=False)
        if self._planned is not None and self._planned.newest is not self._newest:
            self._tell_overhead(self._planned, events)

    def _tell_overhead(self, planned: PlannedPolicy, events: Events) -> None:
        found = self._newest = planned.newest
        if found is not None:
            events.emit(Measured(**asdict(found)))
            self._keeper.keep(planned, decided=False)

    def _wish(self, policy: LearningPolicy, observation: Observation) -> Wish:
        try:
            wish = policy.observe(observation)
        except Exception as error:
            raise self._wrong(_OBSERVE, policy, f"observe(): {type(error).__name__}: {error}") from error
        good = isinstance(wish, Wish) and isinstance(wish.interval, Integral) and 0 <= wish.interval <= NEVER
        if not good:
            raise self._wrong(_OBSERVE, policy, f"observe(): {wish!r}")
        return wish

    @property
    def soon(self) -> int:
        """The step from which on the ranks have agreed to capture a step soon, for ``Schedule.serve``; 0 if they have not."""
        return self._capture.agreed if self._policies else 0

    def settle(self, schedule: Schedule, events: Events) -> None:
        """Tells the policy of the interval that the ranks have agreed on, if it is a new one. To be called on every rank after the same
        execution, behind ``Agreement.settle`` and before ``schedule`` moves on. Collective if the interval is a new one. ``OptionError`` if
        the policy raises; a rank whose own policy does not raises ``WorldError`` then."""
        if not self._policies:
            return
        if self._tuning is not None and self._order.agreed not in (0, self._obeyed):
            self._obeyed = self._order.agreed
            # Another policy's next step may be far away: a trial does not wait for it.
            near = schedule.within(max(1, self._steps))
            self._tuning.obey(self._obeyed, schedule.decided if near else schedule.step)
            self._tune(self._tuning)
            if not near:
                schedule.reconsider()
        before, after = self._agreed, self._interval.agreed
        if after not in (0, before):
            self._agreed = after
            step = schedule.decided
            each(self._world, lambda: self._agree(after, step))
            if self._planned is None:
                events.emit(Decision(step=step, before=before or None, after=after))
            else:
                self._explain(self._planned, step, before or None, after, events)

    def _explain(self, planned: PlannedPolicy, step: int, before: int | None, after: int, events: Events) -> None:
        """Collective. Tells the policies of all ranks whose wish has decided, and why."""
        found = self._world.gather((self._wished, planned.reason()))
        given = [(wished == after, rank, reason) for rank, (wished, reason) in enumerate(found) if reason is not None]
        if not given:
            return
        _, rank, reason = max(given, key=lambda one: (one[0], -one[1]))  # the lowest rank that has wished for it
        decision = Decided(step, before, after, reason.name, rank)
        planned.decided(decision, reason)
        events.emit(Decision(**asdict(decision), terms=_terms(reason)))
        self._keeper.keep(planned, decided=True)
        left = self._position.steps_left(self._steps) if self._position is not None else None
        if self._tuning is not None and self._world.rank == 0 and before is None and left is not None:
            message = beyond(str(self._tuning), reason, after, left)
            if message is not None:
                events.warn(message)

    def end(self, events: Events, saved: bool) -> None:
        """To be called at the end of a training that nothing has interrupted. ``saved``: its last step is."""
        if self._tuning is not None:
            self._keeper.keep(self._tuning, decided=True)
        message = self._planned.ended() if self._planned is not None and self._world.rank == 0 else None
        if message is not None:
            events.notify("info", f"{message}; its last step is saved" if saved else message)

    def _agree(self, interval: int, step: int) -> None:
        for policy in self._policies:
            try:
                policy.agree(interval, step)
            except Exception as error:
                found = f"agree({interval}, {step}): {type(error).__name__}: {error}"
                raise self._wrong(_AGREE, policy, found) from error

    def _wrong(self, expected: str, policy: LearningPolicy, found: str) -> OptionError:
        return OptionError(
            where="every=",
            expected=expected,
            found=f"{type(policy).__name__}.{found}"[:300],
            todo="mend the policy: a rank whose policy fails ends the training of all ranks",
        )


def _terms(reason: Reason) -> dict[str, Any]:
    return {"profile": asdict(reason.profile), "terms": asdict(reason.terms)}


def _progressed(report: Report) -> Progressed:
    return Progressed(
        step=report.step,
        local=_reached(report.local_s),
        written=_reached(report.written_s),
        committed=_reached(report.external_s),
        failed=report.code != OK,
        superseded=report.code == SUPERSEDED,
        copy=report.copy_s or None,  # 0: it was not made to the engine's memory
        cpu=_reached(report.cpu_s),
    )


def _reached(seconds: float) -> float | None:
    return None if seconds < 0 else seconds
