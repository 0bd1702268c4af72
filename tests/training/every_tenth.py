"""The example of ``deepfreeze.training.part``: a part that tells of every tenth checkpoint, as soon as all ranks know of it."""

from __future__ import annotations

from deepfreeze.plan.schedule import Execution, Schedule
from deepfreeze.training.begun import Begun
from deepfreeze.training.part import Part


class EveryTenth(Part):
    """Rank 0 tells of so many tens of checkpoints when some rank has captured them."""

    def __init__(self, begun: Begun) -> None:
        self._begun, self._field = begun, begun.agreement.field("tenth")  # of the control word
        self._captured = self._told = 0

    def captured(self, step: int) -> None:
        """A proposal stands until the next one, so the number of tens is proposed again and again."""
        self._captured += 1
        self._field.propose(self._captured // 10)

    def settled(self, done: Execution, schedule: Schedule, skip: int) -> None:
        """The ranks may read what they have agreed on after several executions: it is told once."""
        if self._field.agreed > self._told:
            self._told = self._field.agreed
            self._begun.tell(f"{10 * self._told} checkpoints")
