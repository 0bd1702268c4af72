"""One start of a job in a run: lock, recovery of what a dead attempt left, the choice of a step, restore.

Rank 0 alone looks at the run and decides; the others learn it. All of it happens before training; none of it while training.
Imports TensorFlow.
"""

from __future__ import annotations

import logging
import socket
from dataclasses import dataclass
from typing import Any

from deepfreeze.core import names
from deepfreeze.core.config import Options
from deepfreeze.core.errors import NotFoundError, RunError
from deepfreeze.core.keras_model import tf_variable
from deepfreeze.core.lock import Lock
from deepfreeze.core.run import Run
from deepfreeze.core.world import World, each, on_rank_0, together
from deepfreeze.freeze import local_tier
from deepfreeze.freeze.saver import Target
from deepfreeze.thaw import recover
from deepfreeze.thaw.restore import restore

log = logging.getLogger("deepfreeze")


@dataclass
class Attempt:
    """``step``: where training goes on; ``resumed``: the step restored, or None; ``target``: where to write."""

    target: Target
    world: World
    step: int
    resumed: int | None
    lock: Lock | None  # rank 0's

    @staticmethod
    def start(path: str, model: Any, options: Options, world: World, restores: bool = True) -> Attempt:
        """Collective. ``restores=False`` goes on from the model as it is. Raises ``RunError``, ``LockedError``,
        ``NotFoundError``, ``StructureError``, ``CorruptError`` or ``WorldError`` on every rank; the lock is free again then."""
        locks: list[Lock] = []

        def take() -> Target:
            run = Run.open_for_writing(path)
            locks.append(Lock.acquire(path, world.size))
            run.clear_trash()
            return Target(path, run.run_id, names.new_id())

        try:
            target = on_rank_0(world, take)
            each(world, lambda: _shared(path, target.run_id))
            _recover(target, options, world)
            newest = on_rank_0(world, lambda: _choose(path, options.resume) if restores else None)
            if newest is not None:
                each(world, lambda: _restore(model, path, newest, world))
            step = newest if newest is not None else int(tf_variable(model.optimizer.iterations).numpy())
            on_rank_0(world, lambda: _abandon_newer(path, step))
        except BaseException:
            for lock in locks:
                lock.release()
            raise
        return Attempt(target, world, step, newest, locks[0] if locks else None)

    def close(self) -> None:
        """Gives the lock back."""
        if self.lock is not None:
            self.lock.release()


def _shared(path: str, run_id: str) -> None:
    """Every rank: the run directory is the one that rank 0 has opened."""
    found = Run.open(path).run_id
    if found != run_id:
        raise RunError(
            where=path,
            expected=f"run {run_id}, which rank 0 has there",
            found=f"run {found}",
            todo="put the run on storage that all ranks share",
        )


def _choose(path: str, resume: str) -> int | None:
    """Rank 0: the newest committed step, unless resuming is off."""
    if resume == "off":
        return None
    steps = Run.open(path).committed()
    if not steps and resume == "required":
        raise NotFoundError(
            where=path,
            expected='a checkpoint to resume from (resume="required")',
            found="none",
            todo='check the path, or start afresh with resume="auto"',
        )
    return steps[-1] if steps else None


def _restore(model: Any, path: str, step: int, world: World) -> None:
    info = restore(model, path, step, rank=world.rank, world_size=world.size)
    log.info("restored step %d of %s", step, path)
    if info.state == "weights":
        # The optimizer was not saved: only its count goes on, because checkpoints are named by it.
        tf_variable(model.optimizer.iterations).assign(step)


def _abandon_newer(path: str, step: int) -> None:
    """Rank 0: what is newer than the step training goes on from belongs to another history."""
    run = Run.open(path)
    for newer in [s for s in run.committed() if s > step]:
        moved = run.abandon(newer, run.manifest(newer).attempt)
        log.warning("going on from step %d: step %d moved to %s", step, newer, moved)


def _recover(target: Target, options: Options, world: World) -> None:
    """Commits what a dead attempt left whole, on the run or on reachable local tiers, and clears the rest."""
    node = socket.gethostname()
    leads = world.rank == world.gather(node).index(node)  # one rank a node speaks for its local tier
    folders = each(
        world, lambda: [local_tier.directory(b, target.run_id) for b in local_tier.candidates(options.local)]
    )

    def look() -> list[tuple[str, recover.SlotInfo]]:
        return [(node, slot) for folder in folders for slot in recover.leftover_slots(folder)] if leads else []

    slots = [pair for rank in together(world, look) for pair in rank]
    plan = on_rank_0(world, lambda: recover.plan(Run.open(target.run), slots))
    each(world, lambda: recover.transfer(plan, node, target.run) if leads else [])
    on_rank_0(world, lambda: recover.finish(plan, Run.open(target.run)))
    for folder in folders if leads else ():
        recover.clear_slots(folder)
        local_tier.discard(folder)
