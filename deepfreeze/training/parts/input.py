"""The part for ``data=`` that knows which executions a ``fit`` has taken in: an exception may end the ``fit``."""

from __future__ import annotations

from deepfreeze.plan.schedule import Schedule
from deepfreeze.training.begun import Begun
from deepfreeze.training.interrupted import InterruptedFit
from deepfreeze.training.part import Part


class Executions(Part):
    """Tells the ``InterruptedFit`` of the executions of one ``fit``."""

    def __init__(self, begun: Begun, interrupted: InterruptedFit) -> None:
        self._interrupted = interrupted
        interrupted.begin(begun.counted.steps, begun.position, begun.fitting.steps_per_execution)

    def goes_on(self, schedule: Schedule) -> None:
        """The execution is taken in."""
        self._interrupted.executed(schedule.step)
