"""One start of a job in a run: lock, recovery of what a dead attempt left, the choice of a step, restore.

Rank 0 alone looks at the run and decides; the others learn it. All of it happens before training; none of it while training.
Imports TensorFlow.
"""

from __future__ import annotations

import logging
import os
import socket
from dataclasses import dataclass
from typing import Any

from deepfreeze.core import lineage, names
from deepfreeze.core.config import Options
from deepfreeze.core.errors import CorruptError, Error, NotFoundError, RunError
from deepfreeze.core.extras import Extras
from deepfreeze.core.lock import Lock
from deepfreeze.core.run import Run
from deepfreeze.core.world import World, each, on_rank_0, together
from deepfreeze.freeze import local_tier
from deepfreeze.freeze.saver import Target
from deepfreeze.freeze.steps import Steps
from deepfreeze.thaw import recover
from deepfreeze.thaw.fallback import Fallback
from deepfreeze.thaw.restore import Ready, prepare

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
    def start(
        path: str, model: Any, steps: Steps, extras: Extras, options: Options, world: World, restores: bool = True
    ) -> Attempt:
        """Collective. ``restores=False`` goes on from the model as it is. Raises ``RunError``, ``LockedError``,
        ``NotFoundError``, ``StructureError``, ``CorruptError`` or ``WorldError`` on every rank; the lock is free again then."""
        locks: list[Lock] = []
        search = Fallback(path)  # rank 0's is the one that is used

        def take() -> Target:
            if options.resume == "required" and _is_no_run(path):
                raise _nothing_to_resume(path, "no run")  # and a mistyped path is not to become one
            run = Run.open_for_writing(path)
            locks.append(Lock.acquire(path, world.size))
            attempt = run.claim(names.new_id())
            run.clear_trash()
            # Before anything is committed in their place, which would delete them.
            search.quarantine_invalid()
            return Target(path, run.run_id, attempt)

        try:
            target = on_rank_0(world, take)
            each(world, lambda: _shared(path, target.run_id))
            _recover(target, options, world)
            newest = _resume(model, steps, extras, search, options.resume, world) if restores else None
            step = newest if newest is not None else steps.now()
            on_rank_0(world, lambda: _begin(path, model, step))
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


def _resume(model: Any, steps: Steps, extras: Extras, search: Fallback, resume: str, world: World) -> int | None:
    """Collective: restores the newest checkpoint that is whole on every rank and returns its step; None if resuming is off
    or there is none. No rank's model is changed before all ranks have read the same checkpoint without a fault."""
    if resume == "off":
        return None
    step: int | None = None
    ready: Ready | None = None
    errors: list[CorruptError | None] = []

    def following() -> int | None:
        if step is not None:
            search.found(step, errors, ranks=world.size > 1)
        return search.next()

    try:
        while (step := on_rank_0(world, following)) is not None:
            ready, errors = _read(model, search.path, step, world)
            if not any(errors):
                break
            ready = None
    except Error:
        search.report("left in place")
        raise
    on_rank_0(world, lambda: _set_aside(search, step, resume))
    if step is None:
        return None
    each(world, lambda: _assign(steps, extras, ready, step, world))
    return step


def _read(model: Any, path: Any, step: int, world: World) -> tuple[Ready | None, list[CorruptError | None]]:
    """Collective: this rank's values, and by rank what was damaged. All other errors are raised, on every rank."""
    found: list[Ready] = []

    def read() -> CorruptError | None:
        try:
            found.append(prepare(model, path, step, world.rank, world.size))
        except CorruptError as error:
            return error.with_traceback(None)  # its frames hold what was read so far
        return None

    errors = together(world, read)
    return (found[0] if found else None), errors


def _set_aside(search: Fallback, step: int | None, resume: str) -> None:
    """Rank 0: moves damaged checkpoints away, when it is known where training goes on."""
    lost = search.structure_lost()
    if step is None and lost is not None:
        search.report("left in place")
        raise lost  # starting from scratch would throw away what one small file brings back
    search.quarantine()
    if step is not None:
        if search.damages:
            log.warning("going on from step %d of %s, the newest checkpoint that is whole", step, search.path)
        return
    if resume == "required":
        raise _nothing_to_resume(search.path, "; ".join(["none", *map(str, search.damages)]))
    if search.damages:
        log.warning("no checkpoint of %s is whole: training starts from scratch", search.path)


def _is_no_run(path: str) -> bool:
    """Whether there is nothing, or a directory with neither an identity nor a checkpoint."""
    try:
        found = os.listdir(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False  # whoever opens it says what it is
    return names.RUN_FILE not in found and not any(names.parse_step_dir(name) is not None for name in found)


def _nothing_to_resume(path: Any, found: str) -> NotFoundError:
    expected, todo = (
        'a checkpoint to resume from (resume="required")',
        'check the path, or start afresh with resume="auto"',
    )
    return NotFoundError(where=path, expected=expected, found=found, todo=todo)


def _assign(steps: Steps, extras: Extras, ready: Ready | None, step: int, world: World) -> None:
    assert ready is not None
    if extras:
        _load_extras(extras, ready, world)
    info = ready.assign()
    log.info("restored step %d of %s", step, info.run)
    if info.state == "weights":
        # The optimizer was not saved: only its count goes on, because checkpoints are named by it.
        steps.set(step)


def _load_extras(extras: Extras, ready: Ready, world: World) -> None:
    if ready.extra is None:
        log.warning("step %d has no extra states: they stay as they are", ready.info.step)
        return
    own = world.rank if world.rank < ready.info.world_size else 0
    where = ready.info.path / names.record_file(own)
    extras.load(ready.extra, where, None if own == world.rank else world.rank)


def _begin(path: str, model: Any, step: int) -> None:
    """Rank 0: what is newer than the step training goes on from belongs to another history; and a run that begins here, because
    it has no other checkpoint, was seeded from what the model was given last."""
    run = Run.open(path)
    for newer in [s for s in run.committed() if s > step]:
        moved = run.abandon(newer, run.manifest(newer).attempt)
        log.warning("going on from step %d: step %d moved to %s", step, newer, moved)
    if not run.committed():
        parent = lineage.parent_of(model)
        run.set_parent(parent if parent is not None and parent.run_id != run.run_id else None)


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
