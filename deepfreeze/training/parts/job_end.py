"""The part for ``ends_at=``: the last checkpoint is committed before the scheduler ends the job."""

from __future__ import annotations

import time
from collections.abc import Sequence

from deepfreeze.engine.records import Report
from deepfreeze.freeze.agreed_structure import AgreedStructure
from deepfreeze.freeze.saver import Saver
from deepfreeze.plan.job_end import JobEnd
from deepfreeze.plan.schedule import Execution, Schedule
from deepfreeze.training.begun import Begun
from deepfreeze.training.part import Part


class BeforeTheJobEnds(Part):
    """Rank 0's look-out for the end of its job."""

    def __init__(self, begun: Begun, end: JobEnd) -> None:
        self._agreement, self._end = begun.agreement, end
        self._saver: Saver | None = None

    def opens(self, saver: Saver, agreed: AgreedStructure) -> None:
        """Gets the saver, which knows the unfinished checkpoints."""
        self._saver = saver

    def execution_ended(self) -> None:
        """Measures the executions."""
        self._end.execution_ended(time.monotonic())

    def captured(self, step: int) -> None:
        """Notes when the commit began."""
        self._end.saved(step, time.monotonic())

    def reports(self, reports: Sequence[Report]) -> None:
        """Measures the commits."""
        if reports:
            self._end.committed(report.external_s for report in reports if report.step >= 0)

    def ended(self, done: Execution, schedule: Schedule) -> None:
        """Proposes to end training after a last checkpoint, if there will be no time for another one."""
        saver = self._saver
        assert saver is not None
        coming = [] if saver.pending is None else [saver.pending]
        if self._end.near(time.time(), time.monotonic(), [*saver.engine.unfinished, *coming]):
            self._agreement.end()
