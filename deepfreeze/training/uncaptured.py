"""Tells of the steps that were due and are not captured."""

from __future__ import annotations

from deepfreeze.errors import OptionError
from deepfreeze.events.event import Skipped
from deepfreeze.events.events import Events
from deepfreeze.plan.schedule import Execution


def tell(done: Execution, events: Events, rank: int, storage: bool) -> None:
    """Tells of the steps that were due in the execution ``done`` and not captured. ``storage``: for want of room in the run."""
    if done.skipped is not None:
        events.emit(Skipped(step=done.skipped, why="storage" if storage else "full"))
    if done.missed is None:
        return
    if done.captured is None:
        events.emit(Skipped(step=done.missed, why="unequal"))
    elif rank == 0:
        events.warn(str(_too_often(done.captured, done.missed, done.steps)), once="every=")


def _too_often(captured: int, missed: int, steps: int) -> OptionError:
    """Two steps were due in one execution of so many ``steps``. One warning is enough for all ``fit``s."""
    return OptionError(
        where="every=",
        expected=f"at most one checkpoint per execution, which is {steps} steps here",
        found=f"steps {captured} and {missed} due in the same one: only the first is saved, here and in later executions",
        todo="raise every=, or lower steps_per_execution",
    )
