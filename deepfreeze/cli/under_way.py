"""How far the checkpoints of a running job are, in lines for ``deepfreeze ls``."""

from __future__ import annotations

import contextlib

from deepfreeze import wording
from deepfreeze.errors import Error
from deepfreeze.events.event import Unfinished
from deepfreeze.events.newest_progress import newest_progress
from deepfreeze.format import names
from deepfreeze.notices import unheard
from deepfreeze.store.run import Run

_NAMED = 8  # ranks in a line


def lines(run: Run, now: float) -> list[str]:
    """A line for each checkpoint of the job that writes to ``run``, if it has been on its way for a second or more. ``now``: seconds since
    1970."""
    found = newest_progress(run)
    if found is None:
        return []
    ago = wording.duration(max(0.0, now - found.t / 1e9))
    slots = _slots(run, found.attempt)
    return [
        f"on its way {ago} ago: {_line(one, _published(run, one.step, found.attempt), slots.get(one.step, []))}"
        for one in found.unfinished
    ]


def _line(one: Unfinished, published: list[int], in_slots: list[int]) -> str:
    of = wording.size(one.nbytes)
    parts = [f"step {one.step}, for {wording.duration(one.seconds)}"]
    if one.local:
        parts.append(f"{wording.size(one.local)} of {of} on the local tier")
    done = f"{wording.size(one.external)} of {of} in the store"
    parts.append("rank 0's part is durable" if one.published else done)
    if in_slots:
        parts.append(f"parts of {_ranks(in_slots)} whole on this node")
    if published:
        parts.append(f"parts of {_ranks(published)} published")
    if one.waits_for:
        parts.append(f"waits for {one.waits_for}")
    return ", ".join(parts)


def _ranks(ranks: list[int]) -> str:
    named = ", ".join([*map(str, ranks[:_NAMED]), *["..."][: len(ranks) > _NAMED]])
    return f"{wording.count(len(ranks), 'rank')} ({named})"


def _slots(run: Run, attempt: str) -> dict[int, list[int]]:
    """By step: the ranks whose parts are whole on the local tiers of this node, as far as ``local="auto"`` finds them."""
    from deepfreeze.engine.faults import LibraryError
    from deepfreeze.tiers import tiers  # reading a run needs no engine

    found: dict[int, set[int]] = {}
    with contextlib.suppress(Error, OSError, LibraryError):
        for tier in tiers.of("auto"):
            for slot in tier.leftovers(run.run_id, unheard):
                if slot.attempt == attempt:
                    found.setdefault(slot.step, set()).add(slot.rank)
    return {step: sorted(ranks) for step, ranks in found.items()}


def _published(run: Run, step: int, attempt: str) -> list[int]:
    """The ranks whose records of the checkpoint are in the run."""
    ranks: set[int] = set()
    with contextlib.suppress(OSError):
        for name in run.store.list(names.partial_dir(step, attempt)):
            rank, several = names.parse_record_file(name), names.parse_node_record_file(name)
            ranks.update([rank] if rank is not None else several or ())
    return sorted(ranks)
