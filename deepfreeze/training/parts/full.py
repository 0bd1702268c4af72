"""The part for ``Engine(when_full=)``: when a checkpoint is due and there is no room for it, training skips it, or gives another one up.

All ranks must do the same: a step is a checkpoint only if it has the records of all ranks. So they agree one execution ahead, by the
control word."""

from __future__ import annotations

from deepfreeze.freeze.agreed_structure import AgreedStructure
from deepfreeze.freeze.saver import Saver
from deepfreeze.plan.schedule import Schedule
from deepfreeze.training.begun import Begun
from deepfreeze.training.part import Part, Saving


class _Asking(Part):
    """Looks for room for the step that is due in the execution after the next one."""

    def __init__(self, begun: Begun) -> None:
        self._storage = begun.storage
        self._saver: Saver | None = None

    def opens(self, saver: Saver, agreed: AgreedStructure) -> None:
        """Gets the saver."""
        self._saver = saver

    def _is_full(self, schedule: Schedule, steps: int) -> bool:
        """Whether there is no room for one more checkpoint behind those that the next execution captures."""
        saver = self._saver
        assert saver is not None
        return not (saver.has_room(schedule.within(steps)) and self._storage.has_room())


class SkippingSteps(_Asking):
    """``Engine(when_full="skip")``: a step for which some rank has no room is skipped on all ranks."""

    def proposes(self, skip: int, schedule: Schedule, steps: int) -> int:
        """Skips the step that is due if there is no room. Raises ``EngineError``."""
        due = schedule.after_next(steps)
        return due if due is not None and not skip and self._is_full(schedule, steps) else skip


class ReplacingSteps(_Asking):
    """``Engine(when_full="replace")``. Each rank *holds*, after an execution, the newest checkpoint that it has handed over: it does not
    begin to write it to the external store. A rank that can't hold it, because it has begun or because it is the oldest, proposes that
    it *stays*. After the next execution all ranks know whether some rank has no room for the step that is due, and whether all of them
    hold the checkpoint. If so, it is given up on all of them. So a newer checkpoint wins (PCcheck, ASPLOS 2025, section 3), and the oldest
    one is committed however slow the store is."""

    def __init__(self, begun: Begun) -> None:
        """Takes two fields of the control word."""
        super().__init__(begun)
        self._full = begun.agreement.field("full")  # the step for which some rank has no room
        self._stays = begun.agreement.field("stays")  # that step, if some rank does not hold the newest one
        self._position = begun.position
        self._held: int | None = None  # the step that each rank was to hold; the same on every rank
        self._due = 0  # the step of the last proposal
        self._answered = 0  # the last step for which one was given up, or that was skipped
        self._kept = -1  # the newest step that gives way to none

    def saves(self, saving: Saving) -> Saving:
        """Notes what must not give way."""
        if saving.stays:
            self._kept = saving.step
        return saving

    def proposes(self, skip: int, schedule: Schedule, steps: int) -> int:
        """Holds the newest checkpoint if a step is due, and proposes what becomes of the two. Raises ``EngineError``."""
        saver, due, newest = self._saver, schedule.after_next(steps), schedule.captured
        assert saver is not None
        full = due is not None and not skip and self._is_full(schedule, steps)
        self._due = due if due is not None and due != self._answered else 0
        self._held = newest if self._due and newest >= 0 and newest != self._kept else None
        held = self._held is not None and saver.pending is None and saver.engine.hold(self._held)
        self._full.propose(self._due if full else 0)
        self._stays.propose(0 if held else self._due)
        return skip

    def gives_up(self, schedule: Schedule) -> int | None:
        """Gives the held checkpoint up if there is no room for the step that is due and all ranks hold it. Else moves the schedule past
        that step. Raises ``EngineError``."""
        saver = self._saver
        assert saver is not None
        held, self._held = self._held, None
        # In a hand-written loop the ranks may have met some executions ago: each answer counts once.
        full = self._full.agreed
        if full == self._answered or full != schedule.target:
            full = 0
        if full:
            self._answered = full
            # The execution was an epoch's last one: the next one may never come.
            pauses = self._position is not None and self._position.epoch_is_over
            if held is not None and self._stays.agreed != full and not pauses:
                saver.engine.replace(held, by=full)
                return held
        if held is not None:
            saver.engine.hold(None)
        if full:
            schedule.aim(full)
        return None

    def pauses(self) -> None:
        """The held checkpoint goes on, and stays. Raises ``EngineError``."""
        if self._held is not None and self._saver is not None:
            self._saver.engine.hold(None)
            self._stays.propose(self._due)
