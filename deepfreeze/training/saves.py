"""Saves one step: asks whether there is room for it, has each part add to it, and hands its capture over."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable

from deepfreeze.errors import EngineError, OptionError
from deepfreeze.events.event import Skipped
from deepfreeze.events.stats import Newest
from deepfreeze.frameworks.state_capture import CapturedState
from deepfreeze.freeze.saver import Saver
from deepfreeze.plan.schedule import Execution, Schedule
from deepfreeze.training.begun import Begun
from deepfreeze.training.commits import Commits
from deepfreeze.training.failures import Failures
from deepfreeze.training.handover import Handover
from deepfreeze.training.part import Saving
from deepfreeze.training.part_list import Parts


class Saves:
    """The steps that one session saves, from the construction to the engine's end. The training thread of every rank calls all methods,
    after the same step. A step *is held* until the callbacks of its epoch have ended (``Handover``)."""

    def __init__(self, begun: Begun, parts: Parts, hands: Handover, failures: Failures, saved: Newest[int]) -> None:
        """``saved``: the model's steps that are saved already, to which this object adds its own."""
        self._events, self._hands, self._failures, self._saved = begun.events, hands, failures, saved
        self._commits = Commits(begun, parts, failures)
        self._parts, self._first = parts, begun.world.rank == 0
        self._storage, self._keep = begun.storage, begun.options.keep

    def open(self) -> Saver:
        """Collective. Opens the engine, when all of the model's variables exist."""
        saver = self._hands.open()
        self._storage.open(saver, self._keep, self._commits.take)
        self._commits.open(saver)
        return saver

    def __contains__(self, step: int) -> bool:
        return step in self._saved

    def tell(self, done: Execution) -> None:
        """Tells of the steps that have passed in ``done``, were due, and were not captured."""
        if done.skipped is not None:
            storage = self._storage.has_skipped(done.skipped)
            self._events.emit(Skipped(step=done.skipped, why="storage" if storage else "full"))
        if done.missed is None:
            return
        if done.captured is None:
            self._events.emit(Skipped(step=done.missed, why="unequal"))
        elif self._first:
            self._events.warn(str(_too_often(done.captured, done.missed, done.steps)), once="every=")

    def take_reports(self) -> None:
        """Hears what has become of the checkpoints. Raises as ``Failures.fail``."""
        self._commits.take()

    def now(self, step: int, schedule: Schedule, hold: bool = True) -> None:
        """Saves ``step`` with the values of this moment, unless the run has no room for it. Training waits for nothing else. ``hold``: as
        for ``save``."""
        saver = self._hands.saver
        assert saver is not None
        self.release(epoch_open=True)
        begin = time.monotonic()
        if not self._is_left_out(step, schedule):
            self.save(Saving(step), saver.take, schedule, hold=hold)
        self._hands.note_blocked(begin)

    def hand_over(self) -> None:
        """Hands a late capture over where training waits for nothing else: no further step may come, or it may come much later."""
        self.pause()
        if not self._hands.holds:
            begin = time.monotonic()
            self._hands.finish()
            self._hands.note_blocked(begin)

    def pause(self) -> None:
        """The next execution may come much later, or never. Each rank calls it by itself."""
        if self._hands.saver is not None:
            self._parts.pauses()

    def release(self, epoch_open: bool) -> None:
        """Hands the step that is held to the engine, if there is one. ``epoch_open``: callbacks have not seen the end of its epoch."""
        step = self._hands.release(epoch_open)
        if step is not None:
            self.kill_if_rehearsed(step)

    def kill_if_rehearsed(self, step: int) -> None:
        """Waits until the checkpoints are committed, and kills this process, if a rehearsal asks for it when ``step`` is saved."""
        if self._parts.kills_after(step):
            self._failures.going_on = False
            self.hand_over()
            self.drain()
            signal.raise_signal(signal.SIGKILL)

    def drain(self) -> None:
        """Waits until every checkpoint is committed or failed, and those that go are removed. Raises as ``Commits.drain``."""
        self._commits.drain()

    def save(
        self,
        saving: Saving,
        collect: Callable[[], CapturedState],
        schedule: Schedule,
        late: bool = False,
        hold: bool = False,
    ) -> None:
        """Hands the capture that ``collect`` returns to the engine. A step that has failed is not tried again, because it has failed on the
        other ranks too. ``late``, ``hold``: as for ``Handover.save``."""
        step = saving.step
        if not self._has_room(step, collect, schedule):
            return
        saving = self._parts.saves(saving.having(stays=hold or schedule.asked_for(step)))
        self._saved.append(step)
        schedule.taken(step)
        self._hands.save(saving, collect, late, hold)

    def _is_left_out(self, step: int, schedule: Schedule) -> bool:
        """Whether ``step``, which nobody knew of beforehand, is not captured: the run has no room for it, as the ranks have agreed."""
        try:
            if self._parts.has_room_now():
                return False
        except EngineError as error:
            self._failures.fail(error, step)
            return True
        if not schedule.settled(step):
            self._events.emit(Skipped(step=step, why="storage"))
            schedule.taken(step)
        return True

    def _has_room(self, step: int, collect: Callable[[], CapturedState], schedule: Schedule) -> bool:
        """Waits until the run has room for the checkpoint of ``step``. Returns False if it is not to be handed over."""
        failure: EngineError | None = None
        try:
            if self._parts.has_room_for(step):
                return True
        except EngineError as error:
            failure = error
        with contextlib.suppress(EngineError):
            collect()  # or the next capture would be taken for a part of this one
        schedule.taken(step)
        if failure is None:
            self._events.emit(Skipped(step=step, why="storage"))
        else:
            if self._hands.saver is not None:
                self._hands.saver.fail(step, failure)
            self._failures.fail(failure, step)
        return False


def _too_often(captured: int, missed: int, steps: int) -> OptionError:
    """Two steps were due in one execution of so many ``steps``. One warning is enough for all ``fit``s."""
    return OptionError(
        where="every=",
        expected=f"at most one checkpoint per execution, which is {steps} steps here",
        found=f"steps {captured} and {missed} due in the same one: only the first is saved, here and in later executions",
        todo="raise every=, or lower steps_per_execution",
    )
