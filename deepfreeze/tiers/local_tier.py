"""A directory on the node, in memory or on a disk, as a tier."""

from __future__ import annotations

import contextlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from deepfreeze.engine.backends import table
from deepfreeze.format import names
from deepfreeze.notices import Notify
from deepfreeze.tiers import leftovers, node_memory
from deepfreeze.tiers.recovery_plan import LeftoverSlot


@dataclass(frozen=True)
class LocalTier:
    """The directory ``base``. Implements ``tier.Tier``, which explains the methods. ``share``: the greatest part of the free bytes that
    slots may take; None for a directory that the user has named, which is not asked for its free bytes: the engine says when it is
    full. On a node that has no such directory the tier has no room."""

    base: Path
    share: float | None

    def need(self, nbytes: int) -> Path | None:
        """``base``, if slots of ``nbytes`` bytes leave enough of it free."""
        there = self.base.is_dir() and (self.share is None or nbytes <= self.share * _free(self.base))
        return self.base if there else None

    def leftovers(self, run_id: str, notify: Notify) -> list[LeftoverSlot]:
        """See ``leftovers.leftover_slots``."""
        return leftovers.leftover_slots(self._folder(run_id), notify)

    def rescue(self, path: str, run_dir: str | os.PathLike[str]) -> None:
        """Has the engine copy the slot."""
        table.rescue().transfer(path, os.fspath(run_dir))

    def clear(self, run_id: str) -> None:
        """Deletes the slots, and then the directories that are empty."""
        leftovers.clear_slots(self._folder(run_id))
        self.discard(run_id)

    def discard(self, run_id: str) -> None:
        """Removes the run's directory if it is empty, and then the user's directory above it if that is empty. Symbolic links are not
        followed."""
        folder = self._folder(run_id)
        with contextlib.suppress(OSError):
            user = os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                os.rmdir(folder.name, dir_fd=user)
            finally:
                os.close(user)
            os.rmdir(folder.parent)

    def _folder(self, run_id: str) -> Path:
        """The directory of this user's run. The engine makes it."""
        return self.base / names.local_dir(os.geteuid(), run_id)


def _free(base: Path) -> int:
    """Bytes that may still be written to a base directory."""
    free = shutil.disk_usage(base).free
    return min(free, node_memory.available()) if node_memory.is_memory(base) else free
