"""The part for ``storage=``: the run takes no more bytes than it may."""

from __future__ import annotations

from deepfreeze.plan.schedule import Execution, Schedule
from deepfreeze.training.begun import Begun
from deepfreeze.training.part import Part


class AwaitingRoom(Part):
    """Has training wait until the run has room, or leave checkpoints out. ``retention/storage`` knows how."""

    def __init__(self, begun: Begun) -> None:
        self._storage = begun.storage

    def has_room_now(self) -> bool:
        """Whether the run is not full. ``WaitError`` if nothing moves while it waits."""
        return not self._storage.leaves_out()

    def has_room_for(self, step: int) -> bool:
        """Whether the run has room. ``WaitError`` if nothing moves while it waits."""
        return self._storage.hands_over(step)

    def settled(self, done: Execution, schedule: Schedule, skip: int) -> None:
        """Notes whether the step is skipped because the run is full."""
        self._storage.skips(skip)

    def waits_for_room(self) -> None:
        """Waits until the run has room, or is full. ``WaitError`` if nothing moves meanwhile."""
        self._storage.admit()

    def proposes(self, skip: int, schedule: Schedule, steps: int) -> int:
        """Skips the step that is due if the run is full."""
        armed = schedule.target if schedule.within(steps) else None
        return self._storage.propose(schedule.after_next(steps), armed)
