"""A second implementation of a tier: shards wait in one directory, and ``keep`` puts a copy of them into a second one, as a neighbour
would hold it. What a dead job left is looked for in the second directory alone."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import veloc_bindings
from deepfreeze.notices import Notify
from deepfreeze.tiers import leftovers
from deepfreeze.tiers.recovery_plan import LeftoverSlot


class SecondDirectory:
    """Implements ``deepfreeze.tiers.tier.Tier``. ``calls``: the names of the methods that were called, in order."""

    def __init__(self, first: Path, second: Path) -> None:
        self.first, self.second = first, second
        self.calls: list[str] = []
        self.needed = 0

    def keep(self) -> None:
        """Copies all slots into the second directory, whole or not, while or after they are written."""
        for slot in sorted(self.first.glob("deepfreeze-*/*/*.slot")):
            place = self._folder(slot.parent.name)
            place.mkdir(parents=True, exist_ok=True, mode=0o700)
            shutil.copyfile(slot, place / slot.name)

    def need(self, nbytes: int) -> Path | None:
        self.calls.append("need")
        self.needed = nbytes
        return self.first

    def leftovers(self, run_id: str, notify: Notify) -> list[LeftoverSlot]:
        self.calls.append("leftovers")
        return leftovers.leftover_slots(self._folder(run_id), notify)

    def rescue(self, path: str, run_dir: str | os.PathLike[str]) -> None:
        self.calls.append("rescue")
        veloc_bindings.slot_transfer(path, os.fspath(run_dir))

    def clear(self, run_id: str) -> None:
        self.calls.append("clear")
        shutil.rmtree(self._folder(run_id), ignore_errors=True)

    def discard(self, run_id: str) -> None:
        self.calls.append("discard")

    def _folder(self, run_id: str) -> Path:
        return self.second / run_id
