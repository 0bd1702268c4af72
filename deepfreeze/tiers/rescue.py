"""Finishes the checkpoints that dead attempts have left complete, and deletes those that they have left incomplete. Rank 0 plans
(``plan``), one rank of each node copies the node's slots into the run (``copy_slots``), then rank 0 commits and deletes (``finish``)."""

from __future__ import annotations

import os
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass

from deepfreeze.engine.faults import EngineFault
from deepfreeze.engine.records import CORRUPT
from deepfreeze.errors import CorruptError, EngineError
from deepfreeze.notices import Notify
from deepfreeze.store.run import Run
from deepfreeze.store.writable_run import WritableRun
from deepfreeze.tiers.leftovers import partial_states
from deepfreeze.tiers.recovery_plan import LeftoverSlot, NodeSlot, RecoveryPlan, plan_recovery
from deepfreeze.tiers.tier import Tier


@dataclass(frozen=True)
class Finished:
    """The result of a recovery. ``committed``: (step, attempt) of the checkpoints that were finished; ``cleared``: (step, attempt) of the
    partial directories that were deleted; ``lost``: (step, attempt, reason) of the checkpoints that looked complete and could not be
    committed."""

    committed: list[tuple[int, str]]
    cleared: list[tuple[int, str]]
    lost: list[tuple[int, str, str]]


def plan(run: Run, slots: Iterable[tuple[str, LeftoverSlot]], told: Container[tuple[int, str]] = ()) -> RecoveryPlan:
    """The plan for a run, made on rank 0. ``slots``: (node, slot) of the leftover slots of all nodes; slots of other runs are ignored.
    ``told``: see ``plan_recovery``."""
    own_slots = [NodeSlot(node, slot) for node, slot in slots if slot.run_id == run.run_id]
    return plan_recovery(run.newest(), partial_states(run), own_slots, run.step_dirs(), told)


def copy_slots(
    recovery: RecoveryPlan, node: str, run_dir: str | os.PathLike[str], tiers: Mapping[str, Tier]
) -> list[str]:
    """Copies this node's slots of the plan into the run's partial directories. ``tiers``: by the path of each slot, the tier that has it.
    Returns the paths of the slots that turned out to be damaged.

    EngineError if the engine or the store fails. The caller must not clear anything then, so that the next start can try again.
    """
    damaged = []
    for path in recovery.slots.get(node, []):
        try:
            tiers[path].rescue(path, run_dir)
        except EngineFault as fault:
            if fault.code != CORRUPT:
                raise _failed(path, "to copy a slot to the external store", fault) from fault
            damaged.append(path)
    return damaged


def finish(recovery: RecoveryPlan, run: WritableRun, notify: Notify) -> Finished:
    """Commits the plan's complete checkpoints and deletes the other partial directories. Called on rank 0, which holds the run's lock,
    after ``copy_slots`` of every node. ``notify``: is told what has become of each checkpoint.

    A checkpoint is lost, and deleted, if one of its slots turned out to be damaged, or if its ranks differ. EngineError if the store
    fails; nothing is deleted then.
    """
    committed, lost = [], []
    for step, attempt in recovery.finish:
        try:
            run.store.publish(step, attempt)
        except CorruptError as error:
            lost.append((step, attempt, error.found))
            notify("warning", f"step {step} of a dead attempt could not be finished: {error.found}")
        else:
            committed.append((step, attempt))
            notify("info", f"step {step} of a dead attempt was complete: committed")
    present = set(run.partials())
    cleared = [*recovery.clear, *((step, attempt) for step, attempt, _ in lost if (step, attempt) in present)]
    for partial in cleared:
        run.clear(partial)
    run.clear_trash()
    return Finished(committed=committed, cleared=cleared, lost=lost)


def _failed(where: object, expected: str, fault: Exception) -> EngineError:
    todo = "mend what the message names and start again: nothing was deleted"
    return EngineError(where=where, expected=expected, found=str(fault), todo=todo)
