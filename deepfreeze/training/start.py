"""A job's start in a run, but for the values themselves: lock, recovery of what a dead attempt left, the choice of a step.

Rank 0 alone looks at the run and decides; the others learn it. All of it happens before training; none of it while training.
Needs no TensorFlow, so the tests crash the very start that a job makes.
"""

from __future__ import annotations

import logging
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from deepfreeze.errors import CorruptError, Error, NotFoundError, RunError
from deepfreeze.format import names
from deepfreeze.format.run_file import Parent
from deepfreeze.ranks.world import World, each, on_rank_0, together
from deepfreeze.store.lock import Lock
from deepfreeze.store.quarantine import Fallback
from deepfreeze.store.run import Run
from deepfreeze.store.target import Target
from deepfreeze.store.writable_run import WritableRun
from deepfreeze.tiers import leftovers, local_tier, recovery_plan, rescue

log = logging.getLogger("deepfreeze")

S = TypeVar("S", bound="Start")


class Values(Protocol):
    """What a start restores on one rank: the values that training goes on with."""

    def table(self, step: int) -> Any:
        """On rank 0 alone: what all ranks need in order to read the checkpoint; it can be pickled. CorruptError if it is damaged."""

    def read(self, step: int, table: Any) -> None:
        """Reads and checks this rank's part of a checkpoint and changes nothing yet. CorruptError if it is damaged."""

    def assign(self, step: int) -> None:
        """Takes over what was read last."""

    def now(self) -> int:
        """The step that training goes on from if nothing is restored."""

    def parent(self) -> Parent | None:
        """The checkpoint that the values are from, if they are from one."""


@dataclass
class Start:
    """``target``: the run and the attempt to write to; ``step``: the step from which training goes on; ``resumed``: the step that was
    restored, or None; ``finished``: the checkpoints of dead attempts that were committed or cleared; ``history``: ids of the attempts
    that the values come from: this one, and the one that committed the newest checkpoint; ``lock``: held by rank 0, None on others."""

    target: Target
    world: World
    step: int
    resumed: int | None
    finished: rescue.Finished
    history: frozenset[str]
    lock: Lock | None

    @classmethod
    def begin(
        cls: type[S],
        path: str,
        values: Values,
        world: World,
        resume: str = "auto",
        local: str | os.PathLike | None = "auto",
        history: frozenset[str] | None = None,
        node: str = "",
    ) -> S:
        """Collective. With the ``history`` of an earlier start nothing is restored: the values go on as they are. ``node`` is the
        host's name if empty. Raises ``RunError``, ``LockedError``, ``NotFoundError``, ``CorruptError`` or ``WorldError`` on every
        rank, and the errors of ``values``; the lock is free again then. Another job's newer checkpoint than the ``history`` and the
        values have is a ``RunError``."""
        locks: list[Lock] = []
        search = Fallback(path)  # rank 0's is the one that is used

        def take() -> Target:
            if resume == "required" and _is_no_run(path):
                raise _nothing_to_resume(path, "no run")  # and a mistyped path is not to become one
            run = WritableRun.open_or_make(path)
            locks.append(Lock.acquire(path, world.size))
            attempt = run.claim(names.new_id())
            run.clear_trash()
            # Before anything is committed in their place, which would delete them.
            search.quarantine_invalid()
            return Target(path, run.run_id, attempt)

        try:
            target = on_rank_0(world, take)
            each(world, lambda: _shared(path, target.run_id))
            finished = _recover(target, local, world, node or socket.gethostname())
            resumed = _resume(values, search, resume, world) if history is None else None
            step = resumed if resumed is not None else values.now()
            newest = on_rank_0(world, lambda: _begin(path, values, step, history))
        except BaseException:
            for lock in locks:
                lock.release()
            raise
        own = (history or frozenset()) | {target.attempt, *newest}
        return cls(target, world, step, resumed, finished, own, locks[0] if locks else None)

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


def _recover(target: Target, local: str | os.PathLike | None, world: World, node: str) -> rescue.Finished:
    """Commits what a dead attempt left whole, on the run or on reachable local tiers, and clears the rest."""
    leads = world.rank == world.gather(node).index(node)  # one rank a node speaks for its local tier

    def places() -> list[Path]:
        return [local_tier.directory(base, target.run_id) for base in local_tier.candidates(local)]

    folders = each(world, places)

    def look() -> list[tuple[str, recovery_plan.LeftoverSlot]]:
        return [(node, slot) for folder in folders for slot in leftovers.leftover_slots(folder)] if leads else []

    slots = [pair for rank in together(world, look) for pair in rank]
    plan = on_rank_0(world, lambda: rescue.plan(Run.open(target.run), slots))
    each(world, lambda: rescue.copy_slots(plan, node, target.run) if leads else [])
    finished = on_rank_0(world, lambda: rescue.finish(plan, WritableRun.open(target.run)))
    for folder in folders if leads else ():
        leftovers.clear_slots(folder)
        local_tier.discard(folder)
    return finished


def _resume(values: Values, search: Fallback, resume: str, world: World) -> int | None:
    """Collective: restores the newest checkpoint that is whole on every rank and returns its step; None if resuming is off
    or there is none. No rank's values are changed before all ranks have read the same checkpoint without a fault."""
    if resume == "off":
        return None
    step: int | None = None
    errors: list[CorruptError | None] = []

    def following() -> int | None:
        if step is not None:
            search.found(step, errors, ranks=world.size > 1)
        return search.next()

    try:
        while (step := on_rank_0(world, following)) is not None:
            errors = _read(values, step, world)
            if not any(errors):
                break
    except Error:
        search.report("left in place")
        raise
    chosen = step
    on_rank_0(world, lambda: _set_aside(search, chosen, resume))
    if chosen is not None:
        each(world, lambda: values.assign(chosen))
    return chosen


def _read(values: Values, step: int, world: World) -> list[CorruptError | None]:
    """Collective: by rank what was damaged. All other errors are raised, on every rank."""

    def table() -> Any:
        try:
            return values.table(step)
        except CorruptError as error:
            return error.with_traceback(None)

    found = on_rank_0(world, table)
    if isinstance(found, CorruptError):
        return [found, *[None] * (world.size - 1)]

    def read() -> CorruptError | None:
        try:
            values.read(step, found)
        except CorruptError as error:
            return error.with_traceback(None)  # its frames hold what was read so far
        return None

    return together(world, read)


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


def _begin(path: str, values: Values, step: int, history: frozenset[str] | None) -> list[str]:
    """Rank 0: moves checkpoints away that are newer than the step from which training goes on, because they belong to another
    history. A run that begins here, because it has no other checkpoint, notes the checkpoint that the values come from. Returns the
    id of the attempt that committed the newest checkpoint, if there is a checkpoint."""
    run = WritableRun.open(path)
    if history is not None:
        _require_nothing_newer(run, step, history)
    for newer in sorted(number for number in run.step_dirs() if number > step):
        try:
            moved: Path | None = run.abandon(newer, run.manifest(newer).attempt)
        except CorruptError:
            moved = run.quarantine(newer)
        except NotFoundError:
            continue  # gone since it was listed
        log.warning("going on from step %d: step %d moved to %s", step, newer, moved)
    newest = run.newest()
    if newest is not None:
        return [run.manifest(newest).attempt]
    if history is None:
        parent = values.parent()
        run.set_parent(parent if parent is not None and parent.run_id != run.run_id else None)
    return []


def _require_nothing_newer(run: Run, step: int, history: frozenset[str]) -> None:
    """Training goes on at ``step`` in a run that was free for a while. Checkpoints that another job has committed meanwhile would be
    moved away as those of an abandoned history."""
    newest = run.newest()
    if newest is not None and newest > step and run.manifest(newest).attempt not in history:
        raise RunError(
            where=run.path,
            expected=f"no newer checkpoint than step {step}, where this model stands",
            found=f"step {newest}, which another job has committed since the model was trained here",
            todo="give the model a new deepfreeze.Checkpoint, which resumes from there, or train it into another run",
        )


def _is_no_run(path: str) -> bool:
    """Whether there is nothing, or a directory with neither an identity nor a checkpoint."""
    try:
        found = os.listdir(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False  # whoever opens it says what it is
    return names.RUN_FILE not in found and not any(names.parse_step_dir(name) is not None for name in found)


def _nothing_to_resume(path: str | os.PathLike[str], found: str) -> NotFoundError:
    expected, todo = (
        'a checkpoint to resume from (resume="required")',
        'check the path, or start afresh with resume="auto"',
    )
    return NotFoundError(where=path, expected=expected, found=found, todo=todo)
