"""Decides which leftovers of dead attempts make a complete checkpoint. The functions here are pure: they read no file, and the same input
gives the same plan."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class LeftoverSlot:
    """A whole slot on this node's local tier. ``run_id``, ``attempt`` and ``structure`` (the structure's hash) are hexadecimal;
    ``file_size`` is the model file's size, ``nbytes`` the size of the slot's extents, both in bytes."""

    path: str
    step: int
    rank: int
    world_size: int
    file_size: int
    nbytes: int
    run_id: str
    attempt: str
    structure: str


@dataclass(frozen=True)
class NodeSlot:
    """A slot and the node it is on."""

    node: str
    slot: LeftoverSlot


@dataclass(frozen=True)
class PartialState:
    """The state of a partial directory. ``ranks``: those whose records are valid. ``world_size``, ``file_size`` and ``structure`` are
    what these records say, 0 and "" if there are none."""

    step: int
    attempt: str
    ranks: frozenset[int] = frozenset()
    world_size: int = 0
    file_size: int = 0
    structure: str = ""


@dataclass(frozen=True)
class RecoveryPlan:
    """Rank 0's decision.

    ``finish``: (step, attempt) of the checkpoints to commit, oldest first. ``slots``: for each node, the paths of the slots that it
    copies into the run before the commits. ``clear``: (step, attempt) of the partial directories to delete.
    """

    finish: list[tuple[int, str]] = field(default_factory=list)
    slots: dict[str, list[str]] = field(default_factory=dict)
    clear: list[tuple[int, str]] = field(default_factory=list)


def plan_recovery(
    newest_committed: int | None,
    partials: Iterable[PartialState],
    slots: Iterable[NodeSlot],
    taken: Container[int] = (),
    told: Container[tuple[int, str]] = (),
) -> RecoveryPlan:
    """Plans to finish every complete checkpoint that is newer than the newest committed one (None if none is committed), and to clear
       all other partial directories. A checkpoint is complete if each rank has a valid record or a whole slot.

    An older one, which a newer one has overtaken, is finished only if all its records are in the run: retention may want it, and nothing
    has to be copied. ``taken``: the steps that have a directory of a checkpoint; ``told``: (step, attempt) of those that had failed, or
    were given up, as far as an attempt has told. An older one of these is never finished.

    Slots and records belong together only if step, attempt, world size, structure and file size all agree. If two attempts
       have a complete checkpoint of one step, the one that needs fewer slots is finished; nothing tells which is newer.
    """
    partials = sorted(set(partials), key=lambda p: (p.step, p.attempt))
    slots = sorted(set(slots), key=lambda s: (s.node, s.slot.path))
    recovery = RecoveryPlan(clear=[(p.step, p.attempt) for p in partials])
    candidates: dict[int, list[tuple[int, str, list[NodeSlot]]]] = {}
    identities = {(p.step, p.attempt) for p in partials} | {(s.slot.step, s.slot.attempt) for s in slots}
    for step, attempt in sorted(identities):
        overtaken = newest_committed is not None and step <= newest_committed
        if overtaken and (step in taken or (step, attempt) in told):
            continue
        to_copy = _slots_to_copy(
            [p for p in partials if (p.step, p.attempt) == (step, attempt)],
            [s for s in slots if (s.slot.step, s.slot.attempt) == (step, attempt)],
        )
        if to_copy is not None and not (overtaken and to_copy):
            candidates.setdefault(step, []).append((len(to_copy), attempt, to_copy))
    for step in sorted(candidates):
        _, attempt, to_copy = min(candidates[step], key=lambda c: c[:2])
        recovery.finish.append((step, attempt))
        for slot in to_copy:
            recovery.slots.setdefault(slot.node, []).append(slot.slot.path)
        if (step, attempt) in recovery.clear:
            recovery.clear.remove((step, attempt))
    return recovery


def _slots_to_copy(partials: list[PartialState], slots: list[NodeSlot]) -> list[NodeSlot] | None:
    """The slots of one step and attempt to copy so that every rank has a record: one for each rank without a valid record. None if the
    checkpoint is not complete, or its records and slots contradict each other."""
    shapes = {(p.world_size, p.file_size, p.structure) for p in partials if p.ranks}
    shapes |= {(s.slot.world_size, s.slot.file_size, s.slot.structure) for s in slots}
    if len(shapes) != 1:
        return None
    (world_size, _, _) = shapes.pop()
    recorded = frozenset().union(*(p.ranks for p in partials))
    by_rank: dict[int, NodeSlot] = {}
    for slot in slots:
        by_rank.setdefault(slot.slot.rank, slot)
    missing = [rank for rank in range(world_size) if rank not in recorded]
    if any(rank not in by_rank for rank in missing):
        return None
    return [by_rank[rank] for rank in missing]
