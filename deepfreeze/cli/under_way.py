"""How far the checkpoints of a running job are, in lines for ``deepfreeze ls``."""

from __future__ import annotations

import contextlib

from deepfreeze import wording
from deepfreeze.events.event import Unfinished
from deepfreeze.events.newest_progress import newest_progress
from deepfreeze.format import names
from deepfreeze.store.run import Run

_NAMED = 8  # ranks in a line


def lines(run: Run, now: float) -> list[str]:
    """A line for each checkpoint of the job that writes to ``run``, if it has been on its way for a second or more. ``now``: seconds since
    1970."""
    found = newest_progress(run)
    if found is None:
        return []
    ago = wording.duration(max(0.0, now - found.t / 1e9))
    return [f"on its way {ago} ago: {_line(one, _published(run, one.step, found.attempt))}" for one in found.unfinished]


def _line(one: Unfinished, published: list[int]) -> str:
    of = wording.size(one.nbytes)
    parts = [f"step {one.step}, for {wording.duration(one.seconds)}"]
    if one.local:
        parts.append(f"{wording.size(one.local)} of {of} on the local tier")
    done = f"{wording.size(one.external)} of {of} in the store"
    parts.append("rank 0's part is durable" if one.published else done)
    if published:
        ranks = ", ".join([*map(str, published[:_NAMED]), *["..."][: len(published) > _NAMED]])
        parts.append(f"parts of {wording.count(len(published), 'rank')} published ({ranks})")
    if one.waits_for:
        parts.append(f"waits for {one.waits_for}")
    return ", ".join(parts)


def _published(run: Run, step: int, attempt: str) -> list[int]:
    """The ranks whose records of the checkpoint are in the run."""
    ranks: set[int] = set()
    with contextlib.suppress(OSError):
        for name in run.store.list(names.partial_dir(step, attempt)):
            rank, several = names.parse_record_file(name), names.parse_node_record_file(name)
            ranks.update([rank] if rank is not None else several or ())
    return sorted(ranks)
