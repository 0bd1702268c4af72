"""The steps of one session that are due, or last, and have no checkpoint: which, and who is told why."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from deepfreeze.errors import EngineError, OptionError
from deepfreeze.events.event import Skipped
from deepfreeze.events.events import Events
from deepfreeze.frameworks.framework import CapturedState
from deepfreeze.freeze.saver import Saver
from deepfreeze.plan.schedule import Execution, Schedule
from deepfreeze.retention.storage import Storage
from deepfreeze.training.commits import Commits


class Uncaptured:
    """Decides which steps of one session are not captured for want of room in the run, and tells the user of them. The training thread
    calls all methods; those with a ``schedule`` are called on every rank after the same step."""

    def __init__(self, storage: Storage, commits: Commits, events: Events, rank: int) -> None:
        """``commits``: is told of failures."""
        self._storage, self._commits, self._events, self._rank = storage, commits, events, rank

    def tell(self, done: Execution) -> None:
        """Tells of the steps that were due in the execution ``done`` and not captured."""
        if done.skipped is not None:
            storage = self._storage.has_skipped(done.skipped)
            self._events.emit(Skipped(step=done.skipped, why="storage" if storage else "full"))
        if done.missed is None:
            return
        if done.captured is None:
            self._events.emit(Skipped(step=done.missed, why="unequal"))
        elif self._rank == 0:
            self._events.warn(str(_too_often(done.captured, done.missed, done.steps)), once="every=")

    def leaves_out(self, step: int, schedule: Schedule) -> bool:
        """Whether ``step``, which nobody knew of beforehand, is not captured: the run has no room for it, as the ranks have agreed."""
        try:
            if not self._storage.leaves_out():
                return False
        except EngineError as error:
            self._commits.fail(error, step)
            return True
        if not schedule.settled(step):
            self._events.emit(Skipped(step=step, why="storage"))
            schedule.taken(step)
        return True

    def may_hand_over(self, step: int, collect: Callable[[], CapturedState], schedule: Schedule, saver: Saver) -> bool:
        """Waits until the run has room for the checkpoint of ``step``. Returns False if it is not to be handed over."""
        failure: EngineError | None = None
        try:
            if self._storage.hands_over(step):
                return True
        except EngineError as error:
            failure = error
        with contextlib.suppress(EngineError):
            collect()  # or the next capture would be taken for a part of this one
        schedule.taken(step)
        if failure is None:
            self._events.emit(Skipped(step=step, why="storage"))
        else:
            saver.fail(step, failure)
            self._commits.fail(failure, step)
        return False


def _too_often(captured: int, missed: int, steps: int) -> OptionError:
    """Two steps were due in one execution of so many ``steps``. One warning is enough for all ``fit``s."""
    return OptionError(
        where="every=",
        expected=f"at most one checkpoint per execution, which is {steps} steps here",
        found=f"steps {captured} and {missed} due in the same one: only the first is saved, here and in later executions",
        todo="raise every=, or lower steps_per_execution",
    )
