"""Brings a policy what the run's ``plan.json`` knows, and keeps there what the policy finds (docs/format.md, "Plan")."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from deepfreeze.engine.target import Target
from deepfreeze.errors import Error
from deepfreeze.events.events import Events
from deepfreeze.events.queue import Queue
from deepfreeze.plan.auto_section import Conditions
from deepfreeze.plan.policy import PlannedPolicy, PlanSection
from deepfreeze.ranks.world import on_rank_0
from deepfreeze.store.plan import put_section, read_section
from deepfreeze.store.run import Run
from deepfreeze.training.open_run import OpenRun

_SECONDS = 10.0  # between two writes that no decision asks for
_AT_END = 5.0  # seconds that the end of a training waits for the last write: the store may hang


class PlanKeeper:
    """The plan of one training. The training thread calls all methods. Rank 0 reads and writes ``plan.json``; a thread of its own writes,
    because the store may be slow."""

    def __init__(self, open_run: OpenRun, events: Events) -> None:
        self._attempt, self._closing, self._events = open_run.attempt, open_run.closing, events
        self._queue: Queue | None = None

    def begin(self, policy: PlannedPolicy, conditions: Conditions, uncommitted: int, step: int) -> None:
        """Collective. Tells ``policy`` that a training begins at ``step``, and of its section of ``plan.json``. ``conditions``,
        ``uncommitted``: as this rank sees them; those of rank 0 count. A file that can't be read counts as none, with a warning."""
        target, world = self._attempt.target, self._attempt.world
        found = on_rank_0(world, lambda: (conditions, uncommitted, self._read(target, policy.section)))
        conditions, uncommitted, stored = found
        message = policy.begin(conditions, uncommitted, step, stored)
        if world.rank != 0:
            return
        if message is not None:
            level, text = message
            self._events.notify(level, f"{target.run}: {text}")
        writer = _Writer(target, policy.section)
        self._queue = Queue(writer, at_end=writer.write)
        self._queue.start()
        self._closing.callback(self._close, self._queue, writer)

    def keep(self, policy: PlannedPolicy, decided: bool) -> None:
        """Has the policy's section written, soon if something was ``decided``, else within the next seconds or at the end of the training.
        Does nothing on other ranks than rank 0."""
        section = policy.plan() if self._queue is not None else None
        if self._queue is not None and section is not None:
            self._queue.put((section, decided))

    def _read(self, target: Target, section: str) -> Mapping[str, Any] | None:
        try:
            return read_section(Run.open(target.run), section)
        except Error as error:
            self._events.notify("warning", f"{error} The training is profiled again.")
            return None

    def _close(self, queue: Queue, writer: _Writer) -> None:
        queue.close()
        if not queue.join(_AT_END):
            writer.closed = True
            queue.failure = queue.failure or TimeoutError(f"it was not written within {_AT_END:g} s")
        if queue.failure is not None:
            self._events.notify("warning", f"{queue.name} could not be kept: {queue.failure}")


class _Writer:
    """Writes a section. The queue's thread calls all methods. ``closed``: the run's lock is given back, so nothing may be written any
    more."""

    def __init__(self, target: Target, section: str) -> None:
        self.name = f"{target.run}/plan.json"
        self._target, self._section = target, section
        self.closed = False
        self._newest: PlanSection | None = None  # not written yet
        self._written = -_SECONDS

    def on(self, given: tuple[PlanSection, bool]) -> None:
        """Takes in a section; writes it if it is time."""
        self._newest, decided = given
        if decided or time.monotonic() - self._written >= _SECONDS:
            self.write()

    def write(self) -> None:
        """Writes the newest section, if it was not written yet."""
        newest = self._newest
        if newest is not None and not self.closed:
            self._written = time.monotonic()
            put_section(Run.open(self._target.run), self._section, newest.to_json(), self._target.attempt)
            self._newest = None  # only now: a store that has refused is asked again
