"""The choice when a checkpoint is due and there is no room for it: training waits, skips it, or gives another checkpoint up for it.

All ranks must do the same: a step is a checkpoint only if it has the records of all ranks. So they agree one execution ahead, by the
control word.
"""

from __future__ import annotations

from deepfreeze.events.events import Events
from deepfreeze.freeze.saver import Saver
from deepfreeze.plan.schedule import Schedule
from deepfreeze.ranks.agreement import Agreement
from deepfreeze.ranks.world import World
from deepfreeze.retention.keeper import Keeper
from deepfreeze.retention.storage import Storage
from deepfreeze.training.options import Options


class WhenFull:
    """The agreement of one session. The training thread of every rank calls all methods, after the same executions. ``storage``: the bound
    of the run's bytes, which leaves checkpoints out for reasons of its own.

    With ``Engine(when_full="replace")`` each rank *holds*, after an execution, the newest checkpoint that it has handed over: it does not
    begin to write it to the external store. A rank that can't hold it, because it has begun or because it is the oldest, proposes that
    it *stays*. After the next execution all ranks know whether some rank has no room for the step that is due, and whether all of them
    hold the checkpoint. If so, it is given up on all of them. So a newer checkpoint wins (PCcheck, ASPLOS 2025, section 3), and the oldest
    one is committed however slow the store is."""

    def __init__(self, options: Options, agreement: Agreement, world: World, keeper: Keeper, events: Events) -> None:
        """Takes fields of the control word, as far as the ``options`` need some."""
        self.storage = Storage(options.storage, agreement, world, keeper, events)
        self._option, self._agreement = options.engine.when_full, agreement
        replaces = self._option == "replace"
        self._full = agreement.field("full") if replaces else None  # the step for which some rank has no room
        self._stays = (
            agreement.field("stays") if replaces else None
        )  # that step, if some rank does not hold the newest one
        self._held: int | None = None  # the step that each rank was to hold; the same on every rank
        self._due = 0  # the step of the last proposal
        self._answered = 0  # the last step for which one was given up, or that was skipped
        self._kept = -1  # the newest step that gives way to none

    def keeps(self, step: int) -> None:
        """The checkpoint of ``step`` is an epoch's last one, or somebody has asked for it: it gives way to none."""
        self._kept = step

    def propose(self, schedule: Schedule, steps: int, saver: Saver) -> None:
        """To be called once after each execution, when the step that the next one captures is known. Each execution runs so many ``steps``.
        Proposes what becomes of the step that is due in the execution after the next one: all ranks must know of it before that begins.
        Raises ``EngineError``."""
        armed = schedule.within(steps)
        asks = self._option != "wait"
        due = schedule.after_next(steps) if asks or self.storage.limited else None
        skip = self.storage.propose(due, schedule.target if armed else None)
        full = 0
        if asks and due is not None and not skip and not (saver.has_room(armed) and self.storage.has_room()):
            full = due
        if self._full is not None and self._stays is not None:
            newest = schedule.captured
            self._due = due if due is not None and due != self._answered else 0
            self._held = newest if self._due and newest >= 0 and newest != self._kept else None
            held = self._held is not None and saver.pending is None and saver.hold(self._held)
            self._full.propose(full if self._due else 0)
            self._stays.propose(0 if held else self._due)
            full = 0
        self._agreement.skip(skip or full)

    def settle(self, skip: int, schedule: Schedule, saver: Saver, pauses: bool) -> int | None:
        """To be called after the execution that follows ``propose``. ``skip``: the step that the ranks have agreed to skip, 0 if there is
        none; ``pauses``: the execution was an epoch's last one, so that the next one may never come. Moves the schedule past ``skip``, and
        past a step for which there is no room and nothing gives way. Returns the step that all ranks have given up, None if there is none.
        Raises ``EngineError``."""
        self.storage.skips(skip)
        schedule.aim(skip)
        held, self._held = self._held, None
        if self._full is None or self._stays is None:
            return None
        # In a hand-written loop the ranks may have met some executions ago: each answer counts once.
        full = self._full.agreed
        if full == self._answered or full != schedule.target:
            full = 0
        if full:
            self._answered = full
            if held is not None and self._stays.agreed != full and not pauses:
                saver.replace(held, by=full)
                return held
        if held is not None:
            saver.hold(None)
        if full:
            schedule.aim(full)
        return None

    def let_go(self, saver: Saver) -> None:
        """To be called, on each rank by itself, where the next execution may come much later: the held checkpoint goes on, and stays.
        Raises ``EngineError``."""
        if self._held is not None and self._stays is not None:
            saver.hold(None)
            self._stays.propose(self._due)
