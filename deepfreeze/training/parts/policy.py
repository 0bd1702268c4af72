"""The part for a policy that learns: it is told of each execution, wishes, and is told of what the ranks have agreed on."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from numbers import Integral
from typing import Any

from deepfreeze.engine.records import OK, SUPERSEDED, Report
from deepfreeze.errors import OptionError
from deepfreeze.events.event import Decision, Measured
from deepfreeze.freeze.agreed_structure import AgreedStructure
from deepfreeze.freeze.saver import Saver
from deepfreeze.freeze.settings import SaverSettings
from deepfreeze.plan.auto_section import Conditions, Decided
from deepfreeze.plan.never import NEVER
from deepfreeze.plan.observation import Observation, Progressed
from deepfreeze.plan.policy import LearningPolicy, PlannedPolicy, Reason, TuningPolicy, Wish, parts
from deepfreeze.plan.schedule import Execution, Schedule
from deepfreeze.ranks.world import each
from deepfreeze.training.begun import Begun
from deepfreeze.training.engine_limits import EngineLimits
from deepfreeze.training.part import Part
from deepfreeze.training.plan_keeper import PlanKeeper

_OBSERVE = "a policy whose observe() returns a deepfreeze.plan.Wish, with an interval from 0 to deepfreeze.plan.NEVER"
_AGREE = "a policy whose agree() takes each interval that the ranks agree on"


class Learning(Part):
    """The wishes of one rank's policy during one training: of the parts of it that learn."""

    def __init__(self, begun: Begun, waiting: int, clock: Callable[[], float] = time.perf_counter) -> None:
        """Takes two fields of the control word, and a third one if the policy tries settings of the engine. ``waiting``: how many
        checkpoints may wait for their metrics beside those that are kept; ``clock``: seconds."""
        policy, agreement = begun.policy, begun.agreement
        self._limits = EngineLimits(begun.options, begun.open_run.attempt.target.run, waiting, begun.world)
        self._nodes, self._counter = begun.open_run.attempt.nodes, begun.counted.steps
        self._position, self._events = begun.position, begun.events
        self._world, self._keeper = begun.world, PlanKeeper(begun.open_run, begun.events)
        self._planned = next((part for part in parts(policy) if isinstance(part, PlannedPolicy)), None)
        self._newest = self._planned.newest if self._planned is not None else None
        self._tuning = self._planned if isinstance(self._planned, TuningPolicy) else None
        self._agreement, self._signals = agreement, agreement.signals
        self._policies = [part for part in parts(policy) if isinstance(part, LearningPolicy)]
        self._interval, self._capture = agreement.field("interval"), agreement.field("capture")
        self._order = agreement.field("tuning") if self._tuning is not None else None
        self._obeyed = 0  # the word of the order that was agreed on last
        self._trials = self._tuning.trials if self._tuning is not None else 0
        self._saver: Saver | None = None
        self._opened = False  # the engine was opened since the ranks have settled last
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

    def settings(self, settings: SaverSettings) -> SaverSettings:
        """The engine must be one that can be tuned, if the policy tunes it."""
        return replace(settings, tuned=self._tuning is not None)

    def opens(self, saver: Saver, agreed: AgreedStructure) -> None:
        """Tells the policy what an earlier job has found out."""
        self._saver, self._opened = saver, True
        conditions = Conditions(agreed.structure.digest.hex(), self._world.size, self._nodes.cores, saver.tier)
        if self._tuning is not None:
            self._tuning.limit(self._limits.of(saver))
        if self._planned is not None:
            self._keeper.begin(self._planned, conditions, saver.most_uncommitted, self._counter.now())
            self._agreed, self._newest = self._planned.interval, self._planned.newest
        if self._tuning is not None:
            self._tune(self._tuning, saver)

    def _tune(self, tuning: TuningPolicy, saver: Saver) -> None:
        """Gives the engine the setting that the ranks have agreed on."""
        setting = tuning.setting
        if setting is not None:
            saver.engine.tune(setting.writers, setting.transfers, setting.uncommitted)

    def tolerates(self, step: int) -> bool:
        """A checkpoint that was taken to try a setting may fail: training goes on with a setting that has worked."""
        return self._tuning is not None and self._tuning.is_trial(step)

    def execution_ended(self) -> None:
        """Looks at the clock."""
        self._before, self._ended = self._ended, self._clock()

    def goes_on(self, schedule: Schedule) -> None:
        """Looks at the clock."""
        self._went_on = self._clock()

    def reports(self, reports: Sequence[Report]) -> None:
        """Takes in the engine's new reports, for the next observation."""
        self._reports += [_progressed(report) for report in reports if report.step >= 0]

    def ended(self, done: Execution, schedule: Schedule) -> None:
        """Tells the policy of the execution, and proposes its wish to the other ranks. If the policy raises on one rank, or wishes for
        something that is no wish, training ends on all ranks; ``OptionError`` if it is alone."""
        try:
            self._observe(schedule, done)
        except OptionError as error:
            if self._world.size == 1:
                raise
            self._agreement.fail(error)

    def _observe(self, schedule: Schedule, done: Execution) -> None:
        saver = self._saver
        assert saver is not None
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
            in_flight=len(saver.engine.unfinished) + (saver.pending is not None),
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
        if self._tuning is not None and self._order is not None:
            self._order.propose(self._tuning.order)
            if self._tuning.trials != self._trials:
                self._trials = self._tuning.trials
                self._keeper.keep(self._tuning, decided=False)
        if self._planned is not None and self._planned.newest is not self._newest:
            self._tell_overhead(self._planned)

    def _tell_overhead(self, planned: PlannedPolicy) -> None:
        found = self._newest = planned.newest
        if found is not None:
            self._events.emit(Measured(**asdict(found)))
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

    def aims(self, done: Execution, schedule: Schedule) -> None:
        """Has a step captured soon, if the ranks have agreed on that."""
        schedule.serve(self._capture.agreed, max(1, done.steps))

    def settled(self, done: Execution, schedule: Schedule, skip: int) -> None:
        """Tells the policy of the interval that the ranks have agreed on, if it is a new one. ``OptionError`` if the policy raises; a rank
        whose own policy does not raises ``WorldError`` then."""
        if self._tuning is not None and self._order is not None and self._order.agreed not in (0, self._obeyed):
            self._obeyed = self._order.agreed
            # Another policy's next step may be far away: a trial does not wait for it.
            near = schedule.within(max(1, self._steps))
            self._tuning.obey(self._obeyed, schedule.decided if near else schedule.step)
            assert self._saver is not None
            self._tune(self._tuning, self._saver)
            if not near:
                schedule.reconsider()
        before, after = self._agreed, self._interval.agreed
        if after not in (0, before):
            self._agreed = after
            step = schedule.decided
            each(self._world, lambda: self._agree(after, step))
            if self._planned is None:
                self._events.emit(Decision(step=step, before=before or None, after=after))
            else:
                self._explain(self._planned, step, before or None, after)
        opened, self._opened = self._opened, False
        if opened and self._planned is not None:
            schedule.reconsider()  # it was asked for the next step before it knew of its plan

    def _explain(self, planned: PlannedPolicy, step: int, before: int | None, after: int) -> None:
        """Collective. Tells the policies of all ranks whose wish has decided, and why."""
        found = self._world.gather((self._wished, planned.reason()))
        given = [(wished == after, rank, reason) for rank, (wished, reason) in enumerate(found) if reason is not None]
        if not given:
            return
        _, rank, reason = max(given, key=lambda one: (one[0], -one[1]))  # the lowest rank that has wished for it
        decision = Decided(step, before, after, reason.name, rank)
        planned.decided(decision, reason)
        self._events.emit(Decision(**asdict(decision), terms=_terms(reason)))
        self._keeper.keep(planned, decided=True)
        left = self._position.steps_left(self._steps) if self._position is not None else None
        if self._tuning is not None and self._world.rank == 0 and before is None and left is not None:
            message = _beyond(str(self._tuning), reason, after, left)
            if message is not None:
                self._events.warn(message)

    def ends(self, final: bool, stopped: bool) -> None:
        """Keeps what the policy has found out, and says on rank 0 why it has found nothing."""
        if self._tuning is not None:
            self._keeper.keep(self._tuning, decided=True)
        message = self._planned.ended() if self._planned is not None and self._world.rank == 0 else None
        if message is not None:
            self._events.notify("info", f"{message}; its last step is saved" if final else message)

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


def _beyond(policy: str, reason: Reason, interval: int, left: int) -> str | None:
    """The message for the user if the ``interval`` that was chosen is longer than the ``left`` steps that the ``fit`` has still to train,
    because checkpoints cost so much; else None. ``policy``: its text; ``reason``: of the rank whose wish has decided."""
    terms, iteration = reason.terms, reason.profile.iteration
    if interval <= left or terms.by_budget <= left:
        return None
    share = terms.cost / (max(1, left) * iteration)
    return (
        f"every={policy}: expected an interval within the {left} steps that this fit has left; found that one checkpoint makes training "
        f"{terms.cost:.3g} s longer, so that the budget allows one every {terms.by_budget} steps. The one at the end of the fit makes "
        f'these steps {100 * share:.3g} % longer. Raise overhead=, or make checkpoints cheaper: more ranks, or state="weights"'
    )
