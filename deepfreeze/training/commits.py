"""What becomes of the checkpoints of one training after they were handed to the engine: reports, failures, removals, and the last wait."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from deepfreeze.errors import EngineError, Error
from deepfreeze.events.event import Counted, Failed
from deepfreeze.events.events import MOST_NOTES, Events
from deepfreeze.events.stats import Newest
from deepfreeze.freeze.saver import Saver
from deepfreeze.plan.job_end import JobEnd
from deepfreeze.ranks.agreement import Agreement
from deepfreeze.retention.keeper import Keeper
from deepfreeze.training.engine_reports import EngineReports, unfinished
from deepfreeze.training.open_run import OpenRun
from deepfreeze.training.options import Options
from deepfreeze.training.replica_checks import ReplicaChecks
from deepfreeze.training.wait_line import WaitLine
from deepfreeze.training.wishes import Wishes

# How many seconds the end of a training waits for retention to judge its last commits. The store may hang.
_RETENTION_SECONDS = 5.0
_TRIED = "It was taken to try a setting of the engine: training goes on with one that has worked."


class Commits:
    """The commits and failures of one session's checkpoints, on this rank. The training thread calls all methods. ``going_on``: whether
    further steps will come, in which the ranks can agree; the session sets it to False."""

    def __init__(
        self,
        open_run: OpenRun,
        agreement: Agreement,
        wishes: Wishes,
        checks: ReplicaChecks,
        job_end: JobEnd,
        keeper: Keeper,
        options: Options,
        events: Events,
    ) -> None:
        """``wishes``, ``checks``, ``job_end``: are given the engine's reports; ``keeper``: retention, a listener of ``events``."""
        self.going_on = True
        self._attempt, self._closing = open_run.attempt, open_run.closing
        self._agreement, self._wishes, self._checks, self._job_end = agreement, wishes, checks, job_end
        self._keeper, self._options, self._events, self._notes = keeper, options, events, events.notes
        self._failed: Newest[int] = Newest()  # steps whose failure was told
        # Metrics that came before ``open``: (step, values, epoch). None from then on.
        self._early: list[tuple[int, Mapping[str, Any], int | None]] | None = []

    def open(self, saver: Saver) -> None:
        """To be called once, when the session's ``saver`` is open, and before all methods that have to do with checkpoints. Has the saver
        closed with the run."""
        target = self._attempt.target
        self._saver = saver
        self._reports = EngineReports(target.run, saver.replicated, self._events)
        self._progress = self._reports.progress
        self._closing.callback(saver.close)
        self._closing.callback(self._take_last)
        if self._attempt.world.rank == 0:
            self._keeper.open(target, self._attempt.step, saver.remove, saver.supersede)
            self._events.watch.open(lambda: unfinished(saver.progress()))
            self._closing.callback(self._events.watch.close)
        early, self._early = self._early or [], None
        for step, values, epoch in early:
            self.measured(step, values, epoch)

    def take(self) -> None:
        """Tells of the engine's new reports, and handles the failures among them. Raises as ``fail``."""
        try:
            reports, well = self._saver.poll()
        except EngineError as failure:
            self.fail(failure)
            return
        failures: list[tuple[int, EngineError, bool]] = []
        if reports:
            self._wishes.enter(reports)
            self._checks.enter(reports)
            self._job_end.committed(report.external_s for report in reports if report.step >= 0)
            if well:  # the usual case
                self._notes.append((time.monotonic(), self._progress, (reports,)))
                if len(self._notes) > MOST_NOTES:
                    self._events.flush()
            else:
                # All reports are told of before the first failure, which may raise.
                failures = self._reports.enter(reports)
        for message in self._keeper.notices():
            self._events.warn(message)
        for step, error, by_store in failures:
            if by_store and self.going_on and self._wishes.is_trial(step):
                self._spare(error, step)
            else:
                self.fail(error, step, reported=True)

    def _spare(self, error: Error, step: int) -> None:
        """A checkpoint has failed that was taken to try a setting of the engine. Training goes on with a setting that has worked."""
        self._failed.append(step)
        self._events.emit(Failed(step=step, message=str(error), raised=False, reported=True, tried=True))
        self._events.warn(f"{error} {_TRIED}", once=_TRIED)

    def fail(self, error: Error, step: int | None = None, reported: bool = False) -> None:
        """Handles a failure of this rank. With ``on_error="warn"`` a warning tells of it. Otherwise proposes to the other ranks to end
        training, so that all ranks raise after the same step; or raises at once if no further step will come."""
        raised = self._options.on_error != "warn"
        # A wait for a checkpoint may fail before the engine reports the checkpoint.
        if step is None or step not in self._failed:
            self._events.emit(Failed(step=step, message=str(error), raised=raised, reported=reported))
        if step is not None:
            self._failed.append(step)
        if not raised:
            return
        if self.going_on and self._attempt.world.size > 1:
            self._agreement.fail(error)
        else:
            # An earlier failure comes first: training may have ended before the ranks agreed on it.
            raise self._agreement.failure or error

    def measured(self, step: int, values: Mapping[str, Any], epoch: int | None) -> None:
        """Gives metrics to retention. ``step``: at which they were taken; ``epoch``: the number of epochs done, at the end of one. Metrics
        that come before ``open`` wait for it."""
        if self._early is not None:
            self._early.append((step, dict(values), epoch))
            return
        self._events.flush()  # retention hears of the captures before
        warning = self._keeper.measured(step, values, epoch)
        if warning is not None:
            self._events.warn(warning)

    def end_without_steps(self) -> None:
        """To be called in place of ``drain`` if ``open`` was not called, because the training has made no step. Warns on rank 0 of metrics
        that are lost by this."""
        if self._early and self._attempt.world.rank == 0:
            steps = ", ".join(map(str, sorted({step for step, _, _ in self._early})))
            message = f"{self._attempt.target.run}: the metrics of step {steps} are not kept, because training has made no step since"
            self._events.warn(message)

    def drain(self) -> None:
        """Waits until every checkpoint is committed or failed, and those that go are removed. Shows the wait on rank 0. ``WaitError`` if
        nothing moves for the time-out; raises as ``fail``."""
        shown = bool(self._options.verbose) and self._attempt.world.rank == 0
        with WaitLine("committing", shown) as line:
            self._wait(line)
            self._events.flush()  # retention hears of the last commits
            if self._keeper.finish(_RETENTION_SECONDS):
                self._wait(line)

    def require_metrics(self) -> None:
        """See ``Keeper.require_metrics``."""
        self._keeper.require_metrics()

    def _wait(self, line: WaitLine) -> None:
        begin, saver = time.monotonic(), self._saver
        while not saver.drain(0.5):
            if saver.stalled(begin):
                raise saver.give_up()
            self.take()
            line.update(f"step {', '.join(map(str, saver.unfinished))}")
        self.take()

    def _take_last(self) -> None:
        """Before the saver is closed: tells of the checkpoints that were committed, or have failed, since the last look, and on rank 0 of
        what the engine has counted; and ends retention."""
        try:
            for step, error, _ in self._reports.enter(self._saver.last_reports()):
                if step not in self._failed:
                    self._events.emit(Failed(step=step, message=str(error), raised=True, reported=True))
            if self._attempt.world.rank == 0 and (counts := self._saver.stats()):
                self._events.emit(Counted(engine=counts))
        finally:
            self._events.flush()  # retention hears of the last commits
            self._keeper.close(_RETENTION_SECONDS)  # from now on nobody calls the engine
