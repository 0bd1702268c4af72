"""How captures reach the engine: at once, one step late, or when the callbacks of an epoch have ended."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable

from deepfreeze.errors import EngineError
from deepfreeze.events.event import Blocked
from deepfreeze.frameworks import table
from deepfreeze.frameworks.state_capture import CapturedState
from deepfreeze.freeze.agreed_structure import agree
from deepfreeze.freeze.regions import RankRegions
from deepfreeze.freeze.saver import Saver
from deepfreeze.plan.never import NEVER
from deepfreeze.ranks import world as worlds
from deepfreeze.state.attachments import Attachments
from deepfreeze.training.begun import Begun
from deepfreeze.training.failures import Failures
from deepfreeze.training.installation import Installation
from deepfreeze.training.part import Saving
from deepfreeze.training.part_list import Parts

# Bound once: each look-up costs training.
_blocked = Blocked.noted


class Handover:
    """Hands one session's captures to the engine. The training thread calls all methods. ``saver``: None until ``open``.

    A step is *pending* from ``save`` until the engine has it. A *late* step waits for the next execution, which copies a part of it. A step
    that is *held* waits until the callbacks of its epoch have ended, because their states belong to it."""

    def __init__(
        self, begun: Begun, installation: Installation, parts: Parts, attachments: Attachments, failures: Failures
    ) -> None:
        self.saver: Saver | None = None
        self._open_run, self._options, self._events = begun.open_run, begun.options, begun.events
        self._steps = begun.counted.steps
        self._notes, self._storage = begun.events.notes, begun.storage
        self._installation, self._attachments, self._failures = installation, attachments, failures
        self._parts = parts
        # True if the next execution may copy a part of the last capture. That execution captures nothing then. The answer is the same on
        # all ranks, because it follows from numbers that all ranks have. So this rank's ``saver`` is not asked for a pending step.
        self._copying = False
        self._reserve_later = False  # memory for the next capture is wanted, once the step that is held is handed over
        self._held_up = 0.0  # seconds for which the pending step has held training up
        self._handed: list[int] = []  # the steps that the engine was given in this call
        self._armed = -1
        model = begun.fitting.model
        # Before anybody reads the model's values: the capture, the comparison of the ranks, objects of the user's among the attachments.
        self._settle = functools.partial(table.of(model).settle, model)

    def open(self) -> Saver:
        """Collective. Agrees on the structure of the checkpoints, unless the installation has it, and opens the engine. To be called when
        all of the model's variables exist."""
        attempt, installation = self._open_run.attempt, self._installation
        target, world = attempt.target, attempt.world
        capture = installation.capture
        self._settle()
        attached = 0
        if self._attachments:
            step = self._steps.now()
            attached = worlds.each(world, lambda: self._attachments.check(step))
        agreed = installation.agreed
        if agreed is None:
            agreed = agree(capture.state.grown(), world, self._events.notify, installation.granule)
        regions = installation.regions
        if regions is None or agreed is not installation.agreed:
            regions = worlds.each(world, lambda: RankRegions.of(agreed, capture, world.rank, world.size))
        # Storing the structure again, as a new process does, would cost the next ``fit`` two syncs.
        stored = agreed is installation.agreed and installation.stored_in == target.run_id
        installation.agreed, installation.regions = agreed, regions
        settings = self._parts.settings(self._options.saver())
        saver = Saver(
            agreed, regions, capture, self._attachments, target, world, attempt.nodes, settings, self._events.notify, stored
        )  # fmt: skip
        saver.expects(attached)
        installation.stored_in = target.run_id
        self._open_run.file_size = agreed.structure.file_size
        self._open_run.closing.callback(saver.close)
        self.saver = saver
        self._parts.opens(saver, agreed)
        return saver

    @property
    def holds(self) -> bool:
        """Whether a step is held."""
        return self.saver is not None and self.saver.held

    def arm(self, target: int) -> None:
        """Sets the step that the train function is to capture next."""
        target = NEVER if self._copying else target
        if target != self._armed:
            self._installation.capture.arm(target)
            self._armed = target

    def leaves(self, late: bool) -> None:
        """``late``: a part of the capture that is about to be saved is left to the next execution, on all ranks."""
        self._copying = late

    def save(self, saving: Saving, collect: Callable[[], CapturedState], late: bool, hold: bool) -> None:
        """Hands the capture that ``collect`` returns to the engine. ``late``: as for ``Saver.save``. ``hold``: other callbacks have still
        to act on the step, as they do at the end of an epoch: the step is held until then, if their states are among the attachments."""
        saver, step = self.saver, saving.step
        assert saver is not None
        hold = hold and bool(self._attachments.of_epochs)
        self._settle()
        try:
            saver.save(step, collect, saving.compare, saving.values, late, hold)
        except EngineError as error:
            self._failures.fail(error, step)
            return
        if hold or saver.pending is None:
            self._parts.captured(step)
        if saver.pending is None:
            self._handed.append(step)

    def finish(self) -> bool:
        """Hands a late capture to the engine, if there is one. From now on the train function may capture. Returns whether the last
        execution could not, because it was copying."""
        copied, self._copying = self._copying, False
        saver = self.saver
        step = saver.pending if saver is not None else None
        if saver is None or step is None or saver.held:
            return copied
        try:
            saver.finish()
        except EngineError as error:
            self._failures.fail(error, step)
        else:
            self._parts.captured(step)
            self._handed.append(step)
        return copied

    def release(self, epoch_open: bool) -> int | None:
        """Hands the step that is held to the engine, and returns it; None if no step is. ``epoch_open``: callbacks have not seen the end of
        its epoch."""
        saver = self.saver
        step = saver.pending if saver is not None and saver.held else None
        if saver is None or step is None:
            return None
        begin = time.monotonic()
        self._settle()
        try:
            saver.release(epoch_open, self._parts.values_at_release())
        except EngineError as error:
            self._failures.fail(error, step)
        else:
            self._handed.append(step)
        self.note_blocked(begin)
        return step

    def reserve(self) -> None:
        """Waits until there is memory for the next capture, which there is not before a step that is held is handed over."""
        saver = self.saver
        assert saver is not None
        self._reserve_later = saver.held
        if self._reserve_later:
            return
        try:
            # Not while a late capture waits for the next step, for the other ranks have not handed it over either.
            if saver.pending is None:
                self._parts.waits_for_room()
            saver.reserve()
        except EngineError as error:
            self._failures.fail(error)

    def reserve_late(self) -> None:
        """The step that was held is handed over: ``reserve``, if that had to wait."""
        if self._reserve_later:
            self.reserve()

    def note_blocked(self, begin: float) -> None:
        """Notes for how long each step that was handed over since ``begin``, the begin of a call, has held training up."""
        now = time.monotonic()
        if self._handed:
            for step in self._handed:
                self._notes.append((now, _blocked, (step, now - begin + self._held_up)))
            self._handed, self._held_up = [], 0.0
        if self.saver is not None and self.saver.pending is not None:
            self._held_up = now - begin
