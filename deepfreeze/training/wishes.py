"""What the policy of one training learns: it is told of each execution, and changes its mind when the ranks agree on another wish."""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Sequence

from deepfreeze.errors import OptionError
from deepfreeze.events.event import Decision
from deepfreeze.events.events import Events
from deepfreeze.freeze.saver import Saver
from deepfreeze.plan.observation import Observation, Progressed
from deepfreeze.plan.policy import NEVER, LearningPolicy, Policy
from deepfreeze.plan.schedule import Execution, Schedule
from deepfreeze.ranks.agreement import Agreement
from deepfreeze.ranks.world import World, each
from veloc_bindings import OK, Report

_OBSERVE = "a policy whose observe() returns a whole number from 0 to deepfreeze.plan.NEVER"
_AGREE = "a policy whose agree() takes each wish that the ranks agree on"


class Wishes:
    """The wishes of one rank's policy during one training. The training thread calls all methods, between two executions. With a policy
    that does not observe they do nothing."""

    def __init__(
        self, policy: Policy, agreement: Agreement, world: World, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        """Takes a field of the control word if ``policy`` observes. ``clock``: seconds."""
        self._world = world
        self._policy = policy if isinstance(policy, LearningPolicy) else None
        self._field = agreement.field("interval") if self._policy is not None else None
        self._agreed = 0  # the wish that the policy has been told of
        self._clock = clock
        self._went_on = clock()  # when training went on after the last execution
        self._ended = self._went_on  # when the last execution ended
        self._before = self._ended  # when the execution before the last one ended
        self._reports: list[Progressed] = []

    def execution_ended(self) -> None:
        """To be called first after each execution."""
        if self._policy is not None:
            self._before, self._ended = self._ended, self._clock()

    def goes_on(self) -> None:
        """To be called last after each execution, when training goes on."""
        if self._policy is not None:
            self._went_on = self._clock()

    def enter(self, reports: Sequence[Report]) -> None:
        """Takes in the engine's new reports, for the next observation."""
        if self._policy is not None:
            self._reports += [_progressed(report) for report in reports if report.step >= 0]

    def observe(self, step: int, done: Execution, saver: Saver) -> None:
        """Tells the policy of the execution ``done``, which ended at ``step``, and proposes its wish to the other ranks. ``OptionError`` if
        the policy raises, or wishes for something that is no interval."""
        if self._policy is None or self._field is None:
            return
        reports, self._reports = self._reports, []
        observation = Observation(
            step=step,
            steps=done.steps,
            seconds=self._ended - self._went_on,
            captured=done.captured,
            blocking=self._went_on - self._before,
            reports=reports,
            in_flight=len(saver.unfinished),
            nbytes=saver.nbytes,
        )
        try:
            wish = operator.index(self._policy.observe(observation))
        except Exception as error:
            raise self._wrong(_OBSERVE, f"observe(): {type(error).__name__}: {error}") from error
        if not 0 <= wish <= NEVER:
            raise self._wrong(_OBSERVE, f"observe(): {wish}")
        self._field.propose(wish)

    def settle(self, schedule: Schedule, events: Events) -> None:
        """Tells the policy of the wish that the ranks have agreed on, if it is a new one. To be called on every rank after the same
        execution, behind ``Agreement.settle``. Collective if the wish is a new one. ``OptionError`` if the policy raises; a rank whose
        own policy does not raises ``WorldError`` then."""
        if self._policy is None or self._field is None:
            return
        before, after = self._agreed, self._field.agreed
        if after in (0, before):
            return
        self._agreed = after
        step = schedule.decided
        each(self._world, lambda: self._agree(after, step))
        events.emit(Decision(step=step, before=before or None, after=after))

    def _agree(self, wish: int, step: int) -> None:
        assert self._policy is not None
        try:
            self._policy.agree(wish, step)
        except Exception as error:
            raise self._wrong(_AGREE, f"agree({wish}, {step}): {type(error).__name__}: {error}") from error

    def _wrong(self, expected: str, found: str) -> OptionError:
        return OptionError(
            where="every=",
            expected=expected,
            found=f"{type(self._policy).__name__}.{found}"[:300],
            todo="mend the policy: a rank whose policy fails ends the training of all ranks",
        )


def _progressed(report: Report) -> Progressed:
    return Progressed(
        step=report.step,
        local=_reached(report.local_s),
        written=_reached(report.written_s),
        committed=_reached(report.external_s),
        failed=report.code != OK,
    )


def _reached(seconds: float) -> float | None:
    return None if seconds < 0 else seconds
