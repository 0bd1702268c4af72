"""The fate of one training's checkpoints after the hand-over to the engine: reports, failures, and the last wait."""

from __future__ import annotations

import time
from typing import NamedTuple

from deepfreeze.errors import EngineError
from deepfreeze.events.event import Counted, Failed
from deepfreeze.events.events import MOST_NOTES
from deepfreeze.freeze.saver import Saver
from deepfreeze.training.begun import Begun
from deepfreeze.training.engine_reports import EngineReports, unfinished
from deepfreeze.training.failures import Failures
from deepfreeze.training.part_list import Parts
from deepfreeze.training.wait_line import WaitLine


class _Opened(NamedTuple):
    saver: Saver
    reports: EngineReports


class Commits:
    """The commits of one session's checkpoints, on this rank. The training thread calls all methods."""

    def __init__(self, begun: Begun, parts: Parts, failures: Failures) -> None:
        """``failures``: hears of the checkpoints that fail."""
        self._open_run, self._events, self._notes = begun.open_run, begun.events, begun.events.notes
        self._speaks = bool(begun.options.verbose) and begun.world.rank == 0
        self._first = begun.world.rank == 0
        self._failures = failures
        self._parts = parts
        self._opened: _Opened | None = None

    def open(self, saver: Saver) -> None:
        """To be called once, when the session's ``saver`` is open, and before the other methods."""
        run, closing = self._open_run.attempt.target.run, self._open_run.closing
        self._opened = _Opened(saver, EngineReports(run, saver.replicated, self._events))
        closing.callback(self._take_last)
        if self._first:
            self._events.watch.open(lambda: unfinished(saver.engine.progress()))
            closing.callback(self._events.watch.close)

    def take(self) -> None:
        """Tells of the engine's new reports, and handles the failures among them. Raises as ``Failures.fail``."""
        assert self._opened is not None
        saver, told = self._opened
        try:
            reports, well = saver.engine.poll()
        except EngineError as failure:
            self._failures.fail(failure)
            return
        failures: list[tuple[int, EngineError, bool]] = []
        if reports and well:  # the usual case
            self._notes.append((time.monotonic(), told.progress, (reports,)))
            if len(self._notes) > MOST_NOTES:
                self._events.flush()
        elif reports:
            # All reports are told of before the first failure, which may raise.
            failures = told.enter(reports)
        self._parts.reports(reports)
        for step, error, by_store in failures:
            self._failures.reported(step, error, by_store)

    def drain(self) -> None:
        """Waits until every checkpoint is committed or failed, and those that go are removed. Shows the wait on rank 0. ``WaitError`` if
        nothing moves for the time-out; raises as ``take``."""
        with WaitLine("committing", self._speaks) as line:
            self._wait(line)
            self._events.flush()  # retention hears of the last commits
            if self._parts.drains():
                self._wait(line)

    def _wait(self, line: WaitLine) -> None:
        assert self._opened is not None
        begin, saver = time.monotonic(), self._opened.saver
        while not saver.engine.drain(0.5):
            if saver.engine.stalled(begin):
                raise saver.engine.give_up()
            self.take()
            line.update(f"step {', '.join(map(str, saver.engine.unfinished))}")
        self.take()

    def _take_last(self) -> None:
        """Before the saver is closed: tells of the checkpoints that were committed, or have failed, since the last look, and on rank 0 of
        what the engine has counted."""
        assert self._opened is not None
        saver, told = self._opened
        try:
            for step, error, _ in told.enter(saver.last_reports()):
                if not self._failures.has_told(step):
                    self._events.emit(Failed(step=step, message=str(error), raised=True, reported=True))
            if self._first and (counts := saver.engine.stats()):
                self._events.emit(Counted(engine=counts))
        finally:
            self._events.flush()  # retention hears of the last commits
