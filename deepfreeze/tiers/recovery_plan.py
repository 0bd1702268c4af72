"""Which leftovers of dead attempts make a complete checkpoint. Pure: no file is looked at, and the same input gives the same plan."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class LeftoverSlot:
    """A whole slot on this host's local tier. Ids and hash in hexadecimal, sizes in bytes."""

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
class HostSlot:
    """A slot and the host it is on."""

    host: str
    slot: LeftoverSlot


@dataclass(frozen=True)
class PartialState:
    """A partial directory: the ``ranks`` whose records are valid; the rest from these records, if there are any."""

    step: int
    attempt: str
    ranks: frozenset[int] = frozenset()
    world_size: int = 0
    file_size: int = 0
    structure: str = ""


@dataclass(frozen=True)
class RecoveryPlan:
    """Rank 0's decision.

    ``finish``: (step, attempt) to commit, oldest first. ``transfer``: by host, paths of slots to copy to the run
    before. ``clear``: (step, attempt) of partial directories to delete.
    """

    finish: list[tuple[int, str]] = field(default_factory=list)
    transfer: dict[str, list[str]] = field(default_factory=dict)
    clear: list[tuple[int, str]] = field(default_factory=list)


def plan_recovery(
    newest_committed: int | None, partials: Iterable[PartialState], slots: Iterable[HostSlot]
) -> RecoveryPlan:
    """Which leftovers make a complete checkpoint newer than the newest committed one. Pure: same input, same decision.

    Slots and records belong together only if step, attempt, world size, structure and file size all agree. Of two
    complete attempts at one step the one with more records is finished; there is no telling which is newer.
    """
    states = sorted(set(partials), key=lambda p: (p.step, p.attempt))
    reports = sorted(set(slots), key=lambda r: (r.host, r.slot.path))
    recovery = RecoveryPlan(clear=[(p.step, p.attempt) for p in states])
    candidates: dict[int, list[tuple[int, str, list[HostSlot]]]] = {}
    found = {(p.step, p.attempt) for p in states} | {(r.slot.step, r.slot.attempt) for r in reports}
    for step, attempt in sorted(found):
        if newest_committed is not None and step <= newest_committed:
            continue
        wanted = _completion(
            [p for p in states if (p.step, p.attempt) == (step, attempt)],
            [r for r in reports if (r.slot.step, r.slot.attempt) == (step, attempt)],
        )
        if wanted is not None:
            candidates.setdefault(step, []).append((len(wanted), attempt, wanted))
    for step in sorted(candidates):
        _, attempt, wanted = min(candidates[step], key=lambda c: c[:2])
        recovery.finish.append((step, attempt))
        for report in wanted:
            recovery.transfer.setdefault(report.host, []).append(report.slot.path)
        if (step, attempt) in recovery.clear:
            recovery.clear.remove((step, attempt))
    return recovery


def _completion(partials: list[PartialState], reports: list[HostSlot]) -> list[HostSlot] | None:
    """The slots to copy so that every rank has a record, one for each that lacks one; None if some can't be had."""
    shapes = {(p.world_size, p.file_size, p.structure) for p in partials if p.ranks}
    shapes |= {(r.slot.world_size, r.slot.file_size, r.slot.structure) for r in reports}
    if len(shapes) != 1:
        return None
    (world_size, _, _) = shapes.pop()
    have = frozenset().union(*(p.ranks for p in partials))
    by_rank: dict[int, HostSlot] = {}
    for report in reports:
        by_rank.setdefault(report.slot.rank, report)
    missing = [rank for rank in range(world_size) if rank not in have]
    if any(rank not in by_rank for rank in missing):
        return None
    return [by_rank[rank] for rank in missing]
