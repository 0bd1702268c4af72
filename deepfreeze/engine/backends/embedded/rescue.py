"""The engine's calls that finish what a dead attempt has left."""

from __future__ import annotations

import veloc_bindings
from veloc_bindings import SlotInfo


class EmbeddedRescue:
    """Implements ``backend.Rescue``, which explains the methods."""

    def slot(self, path: str) -> SlotInfo:
        """Reads the slot's header."""
        return veloc_bindings.slot_inspect(path)

    def transfer(self, path: str, run: str) -> None:
        """Compares every checksum, and publishes the rank's record."""
        veloc_bindings.slot_transfer(path, run)

    def commit(self, run: str, step: int, attempt: str) -> None:
        """Compares the model file with the checksums of all records first."""
        veloc_bindings.commit(run, step, bytes.fromhex(attempt))
