"""The part for a policy that wants to know where epochs end."""

from __future__ import annotations

from deepfreeze.plan.epoch_ends import EpochEnds
from deepfreeze.plan.schedule import Execution, Schedule
from deepfreeze.training.begun import Begun
from deepfreeze.training.part import Part


class TellingEpochs(Part):
    """Tells the policy of one ``fit`` where its epochs end."""

    def __init__(self, begun: Begun) -> None:
        self._ends = EpochEnds(begun.policy, begun.position)

    def aims(self, done: Execution, schedule: Schedule) -> None:
        """Tells of the epoch's last step as soon as it is known."""
        self._ends.execution_ended(schedule, done)

    def epoch_ended(self, schedule: Schedule, step: int) -> bool:
        """Tells that the epoch has ended. Returns whether the policy wants the step to be saved."""
        return self._ends.ended(step)

    def epoch_settled(self, schedule: Schedule) -> None:
        """Asks the policy again, which knows more now."""
        schedule.reconsider()
