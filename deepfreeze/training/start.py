"""The start of a job in a run: takes the lock, finishes the checkpoints that dead attempts left, and chooses the step to go on from. What
the values are, and where they are restored to, is the caller's part (``Values``).

Rank 0 alone looks at the run and decides, and sends the decision to the other ranks. All of this happens before training begins.
Needs no TensorFlow, so that tests can crash the very code with which a job starts.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from deepfreeze.engine.target import Target
from deepfreeze.errors import CorruptError, Error, NotFoundError, RunError
from deepfreeze.format import names
from deepfreeze.format.run_file import Parent
from deepfreeze.notices import Notify
from deepfreeze.ranks.nodes import Node, Nodes
from deepfreeze.ranks.world import World, each, on_rank_0, together
from deepfreeze.store.quarantine import Fallback
from deepfreeze.store.run import Run
from deepfreeze.store.store import RunLock
from deepfreeze.store.stores import at
from deepfreeze.store.writable_run import WritableRun
from deepfreeze.tiers import recovery_plan, rescue, tiers
from deepfreeze.tiers.tier import Tier

S = TypeVar("S", bound="Start")


class Values(Protocol):
    """The values of one rank with which training goes on: a model's, for example. The thread that calls ``Start.begin`` calls all methods,
    one at a time, before training begins.

    The order of the calls: for each checkpoint that is tried, from the newest down, ``table`` on rank 0 and then ``read`` on every rank.
    When all ranks have read a checkpoint without damage, ``assign`` once on every rank. If no checkpoint is restored, ``now`` on every
    rank, and before it ``require_going_on``. At the end ``parent`` on rank 0, if the run has no checkpoint."""

    def table(self, step: int) -> Any:
        """Returns what every rank needs for reading the checkpoint of ``step``. The result can be pickled, and is sent to all ranks.
        ``CorruptError`` if the checkpoint is damaged."""

    def read(self, step: int, table: Any) -> None:
        """Reads and checks this rank's part of the checkpoint of ``step``, in place of what was read before. Changes no value yet.
        ``table``: the result of ``table(step)`` on rank 0. ``CorruptError`` if the checkpoint is damaged; another error ends the start."""

    def assign(self, step: int) -> None:
        """Sets the values to those that were read last, which are of ``step``."""

    def require_going_on(self, run_id: str) -> None:
        """An error if the present values would take the place of checkpoints that the user does not want to lose. ``run_id``: of the run.
        Nothing was moved away yet."""

    def now(self) -> int:
        """Returns the step at which the present values are: 0 for a new model."""

    def parent(self) -> Parent | None:
        """Returns the checkpoint that the present values come from, None if they come from none. It is noted as the new run's origin."""


@dataclass
class Start:
    """A job that has started in a run, and holds the run's lock until ``close``.

    - ``target``: the run and the new attempt, which training writes to. ``nodes``: which ranks share a node.
    - ``step``: the step from which training goes on; ``resumed``: the same if a checkpoint was restored, else None.
    - ``finished``: the checkpoints of dead attempts that were committed or cleared.
    - ``history``: the ids of the attempts that the values come from: this attempt, those of an earlier start whose ``history`` was
      given, and the attempt that committed the newest checkpoint.
    - ``lock``: the run's lock on rank 0, None on the other ranks. ``made``: on rank 0, the directories above a new run that the start has
      made, the uppermost first."""

    target: Target
    world: World
    nodes: Nodes
    step: int
    resumed: int | None
    finished: rescue.Finished
    history: frozenset[str]
    lock: RunLock | None
    made: tuple[Path, ...] = ()

    @classmethod
    def begin(
        cls: type[S],
        path: str,
        values: Values,
        world: World,
        notify: Notify,
        resume: str = "auto",
        local: str | os.PathLike | None = "auto",
        history: frozenset[str] | None = None,
        node: Node | None = None,
    ) -> S:
        """Collective. Starts a job in the run at ``path``, which is made if it does not exist, with the directories above it.

        ``notify``: is told what the start finds and decides. ``resume``, ``local``: the options of these names. ``history``: of an earlier
        start of the same values in this run; nothing is restored then, and the values stay as they are. ``node``: this rank's node, None
        for the node of this process.

        Raises on every rank: ``LockedError`` if another job holds the lock; ``NotFoundError`` if there is nothing to resume and
        ``resume="required"``; ``CorruptError``; ``RunError`` if the run can't be used, or if another job has committed a newer checkpoint
        since the ``history``; and the errors of ``values``. A rank without an error of its own raises ``WorldError``. The lock is free
        again then."""
        locks: list[RunLock] = []
        made: list[Path] = []
        told: list[frozenset[tuple[int, str]]] = []
        search = Fallback(path, notify)  # only rank 0 searches with it

        def take() -> Target:
            if resume == "required" and _is_no_run(path):
                raise _nothing_to_resume(path, "no run")  # before a run is made at a path that may be mistyped
            # An earlier start of these values has tried whether the store can do what commits need, which costs several syncs.
            tried = history is not None and not _is_no_run(path)
            run = WritableRun.open(path) if tried else WritableRun.open_or_make(path, made.extend)
            locks.append(run.store.lock(world.size))
            attempt = run.claim(names.new_id())
            told.append(run.told())
            run.clear_trash()
            # Moved away before a checkpoint of the same step is committed, which would delete them.
            search.quarantine_invalid()
            return Target(path, run.run_id, attempt)

        try:
            target = on_rank_0(world, take)
            each(world, lambda: _require_same_run(path, target.run_id))
            nodes = Nodes.gather(world, node)
            finished = _recover(target, local, world, nodes, notify, told[0] if told else frozenset())
            resumed = _resume(values, search, resume, world) if history is None else None
            if resumed is None:
                each(world, lambda: values.require_going_on(target.run_id))
            step = resumed if resumed is not None else values.now()
            newest = on_rank_0(world, lambda: _take_over(path, values, step, history, notify))
        except BaseException:
            for lock in locks:
                lock.release()
            raise
        attempts = (history or frozenset()) | {target.attempt, *newest}
        return cls(target, world, nodes, step, resumed, finished, attempts, locks[0] if locks else None, tuple(made))

    def close(self) -> None:
        """Gives the run's lock back. Safe to call twice."""
        if self.lock is not None:
            self.lock.release()


def _require_same_run(path: str, run_id: str) -> None:
    """Called by every rank. ``RunError`` if the run at ``path`` is another one than rank 0's: the nodes do not share this directory."""
    try:
        found = Run.open(path).run_id
    except NotFoundError:
        at(path).refresh()  # rank 0 may have made the run's directory, and those above it, in this moment
        found = Run.open(path).run_id
    if found != run_id:
        raise RunError(
            where=path,
            expected=f"run {run_id}, which rank 0 has there",
            found=f"run {found}",
            todo="put the run on storage that all ranks share",
        )


def _recover(
    target: Target,
    local: str | os.PathLike | None,
    world: World,
    nodes: Nodes,
    notify: Notify,
    told: frozenset[tuple[int, str]],
) -> rescue.Finished:
    """Collective. Commits the checkpoints of dead attempts that are complete, in the run or on the local tiers of these nodes, and clears
    the others. ``told``: on rank 0, see ``recovery_plan.plan_recovery``."""
    node, leads = nodes.here.name, nodes.leads  # one rank of each node handles the node's tiers
    mine = each(world, lambda: tiers.of(local))
    holders: dict[str, Tier] = {}  # by the path of each slot that this rank has found

    def find_slots() -> list[tuple[str, recovery_plan.LeftoverSlot]]:
        found = [(tier, slot) for tier in mine for slot in tier.leftovers(target.run_id, notify)] if leads else []
        holders.update({slot.path: tier for tier, slot in found})
        return [(node, slot) for _, slot in found]

    def clear_slots() -> None:
        for tier in mine if leads else ():
            tier.clear(target.run_id)

    slots = [pair for rank in together(world, find_slots) for pair in rank]
    plan = on_rank_0(world, lambda: rescue.plan(Run.open(target.run), slots, told))
    each(world, lambda: rescue.copy_slots(plan, node, target.run, holders) if leads else [])
    finished = on_rank_0(world, lambda: rescue.finish(plan, WritableRun.open(target.run), notify))
    each(world, clear_slots)
    return finished


def _resume(values: Values, search: Fallback, resume: str, world: World) -> int | None:
    """Collective. Restores the newest checkpoint that every rank finds whole, and returns its step. None if there is none, or with
    ``resume="off"``. No rank changes its values before all ranks have read the same checkpoint without damage."""
    if resume == "off":
        return None
    step: int | None = None
    errors: list[CorruptError | None] = []

    def next_step() -> int | None:
        if step is not None:
            search.found(step, errors, ranks=world.size > 1)
        return search.next()

    try:
        while (step := on_rank_0(world, next_step)) is not None:
            errors = _read(values, step, world)
            if not any(errors):
                break
    except Error:
        search.report("left in place")
        raise
    chosen = step
    on_rank_0(world, lambda: _quarantine_damaged(search, chosen, resume))
    if chosen is not None:
        each(world, lambda: values.assign(chosen))
    return chosen


def _read(values: Values, step: int, world: World) -> list[CorruptError | None]:
    """Collective. Reads the checkpoint of ``step`` on every rank. Returns for each rank the damage that it found, None if it found none.
    An error that is no damage is raised, on every rank."""

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
            # The frames of the traceback would keep in memory all that was read so far.
            return error.with_traceback(None)
        return None

    return together(world, read)


def _quarantine_damaged(search: Fallback, step: int | None, resume: str) -> None:
    """On rank 0: moves the damaged checkpoints to ``damaged/``, when the ``step`` from which training goes on is known (None if there is no
    checkpoint that is whole). ``NotFoundError`` if there is none and ``resume="required"``; ``CorruptError`` if there is none because the
    structure's file is damaged."""
    lost = search.structure_lost()
    if step is None and lost is not None:
        search.report("left in place")
        raise lost  # with a copy of this one small file the checkpoints can be read again, so training does not start from scratch
    search.quarantine()
    if step is not None:
        if search.damages:
            search.notify("warning", f"going on from step {step} of {search.path}, the newest checkpoint that is whole")
        return
    if resume == "required":
        raise _nothing_to_resume(search.path, "; ".join(["none", *map(str, search.damages)]))
    if search.damages:
        search.notify("warning", f"no checkpoint of {search.path} is whole: training starts from scratch")


def _take_over(path: str, values: Values, step: int, history: frozenset[str] | None, notify: Notify) -> list[str]:
    """On rank 0: moves away the checkpoints that are newer than the ``step`` from which training goes on, because this training will make
    other ones of the same steps. If no checkpoint is left, stores the checkpoint that the values come from as the run's parent. Returns
    the id of the attempt that committed the newest checkpoint; an empty list if there is no checkpoint."""
    run = WritableRun.open(path)
    if history is not None:
        _require_nothing_newer(run, step, history)
    for newer in sorted(number for number in run.step_dirs() if number > step):
        try:
            moved: Path | None = run.abandon(newer, run.manifest(newer).attempt)
        except CorruptError:
            moved = run.quarantine(newer)
        except NotFoundError:
            continue  # deleted since it was listed
        notify("warning", f"going on from step {step}: step {newer} moved to {moved}")
    newest = run.newest()
    if newest is not None:
        return [run.manifest(newest).attempt]
    if history is None:
        parent = values.parent()
        run.set_parent(parent if parent is not None and parent.run_id != run.run_id else None)
    return []


def _require_nothing_newer(run: Run, step: int, history: frozenset[str]) -> None:
    """``RunError`` if another job has committed a checkpoint newer than ``step`` while the run's lock was free. Training goes on at
    ``step``, so the caller would move that checkpoint away."""
    newest = run.newest()
    if newest is not None and newest > step and run.manifest(newest).attempt not in history:
        raise RunError(
            where=run.path,
            expected=f"no newer checkpoint than step {step}, where this model stands",
            found=f"step {newest}, which another job has committed since the model was trained here",
            todo="give the model a new deepfreeze.Checkpoint, which resumes from there, or train it into another run",
        )


def _is_no_run(path: str) -> bool:
    """Whether ``path`` does not exist, or is a directory with neither a run.json nor a checkpoint."""
    try:
        found = at(path).list()
    except FileNotFoundError:
        return True
    except OSError:
        return False  # opening it as a run raises an error that says what it is
    return names.RUN_FILE not in found and not any(names.parse_step_dir(name) is not None for name in found)


def _nothing_to_resume(path: str | os.PathLike[str], found: str) -> NotFoundError:
    """The error for ``resume="required"``."""
    expected, todo = (
        'a checkpoint to resume from (resume="required")',
        'check the path, or start afresh with resume="auto"',
    )
    return NotFoundError(where=path, expected=expected, found=found, todo=todo)
