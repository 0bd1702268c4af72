"""The protocol of a tier: a place, fast and near to a node, where the node's shards wait until they are external."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol, runtime_checkable

from deepfreeze.notices import Notify
from deepfreeze.tiers.recovery_plan import LeftoverSlot


@runtime_checkable
class Tier(Protocol):
    """One tier as one node has it. Shards wait there in slots (docs/format.md, "LOCAL"), which the engine writes.

    A training calls ``need`` on every rank of the node, before the engine is opened, and ``discard`` on every rank when the engine is
    closed. The start of a job calls ``leftovers``, ``rescue`` and then ``clear`` on the first rank of each node, while rank 0 holds the
    run's lock: no other job writes slots of this run then. Each method is called from the main thread of its process; several ranks of
    a node may call ``need`` and ``discard`` at the same time. ``run_id``: 32 hexadecimal digits."""

    def need(self, nbytes: int) -> Path | None:
        """The directory below which the engines of all ranks of this node make their slots, which need ``nbytes`` bytes together. None if
        there is no room for them; the next tier is asked then. All ranks of the node get the same answer, unless room is short."""

    def leftovers(self, run_id: str, notify: Notify) -> list[LeftoverSlot]:
        """The whole slots that dead attempts of the run have left here, sorted by path. A damaged or half-written slot is none.
        ``notify(level, message)`` tells the user of what is left alone; ``level``: "info" or "warning". ``NewerError`` for a slot that a
        newer version of DeepFreeze wrote."""

    def rescue(self, path: str, run_dir: str | os.PathLike[str]) -> None:
        """Copies a slot into the run's partial directory, compares every checksum, and publishes the rank's record. ``path``: of a slot
        that ``leftovers`` has returned. May be called again. ``EngineFault`` with ``CORRUPT`` if the slot is damaged, with another
        code if this node or the store fails."""

    def clear(self, run_id: str) -> None:
        """Deletes all slots of the run, whole or not. A slot that can't be deleted does no harm: the next start tries again."""

    def discard(self, run_id: str) -> None:
        """Removes what is empty of the run's part of the tier. Slots stay. Called while other ranks may still have slots here."""
