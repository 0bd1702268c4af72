"""How many captures the bytes allow that captures may hold on each rank (``memory=``; M of PCcheck, ASPLOS 2025, section 3)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from deepfreeze.engine.options import MOST_IN_FLIGHT, Engine
from deepfreeze.errors import OptionError


@dataclass(frozen=True)
class MemoryBound:
    """``memory``: the bytes. ``capture``: bytes of each capture of this rank. ``in_engine``: whether captures lie in the engine's memory.
    Otherwise each is taken before the engine is asked for room, so there is one capture more than the engine knows of."""

    memory: int
    capture: int
    in_engine: bool = True

    def captures(self, engine: Engine) -> int:
        """How many captures may be held at once: no more than ``Engine(uncommitted=)`` lets wait. ``OptionError`` if the memory holds too
        few."""
        # Captures in the engine's memory begin at pages, and so do the extents that the local tier is given.
        blocks = engine.chunk_bytes * (engine.writers if self.in_engine else 2 * engine.writers + 1)
        least = 1 if self.in_engine else 2
        found = (self.memory - blocks) // max(1, self.capture)
        if found >= least:
            wanted = MOST_IN_FLIGHT if engine.uncommitted is None else engine.uncommitted + least - 1
            return min(found, wanted)
        shards = "its shard" if self.in_engine else "each of two shards, because captures lie in TensorFlow's memory,"
        raise OptionError(
            where="memory=",
            expected=(
                f"at least {least * self.capture + blocks} bytes on this rank: {self.capture} for {shards} and {blocks} for the blocks of "
                f"Engine(writers={engine.writers}, chunk_bytes={engine.chunk_bytes})"
            ),
            found=f"{self.memory} bytes",
            todo='give more, or use more ranks, fewer writers, or state="weights"',
        )

    def bounded(self, engine: Engine) -> Engine:
        """The same options, with the number of captures that the engine may hold. ``OptionError`` as ``captures``."""
        captures = self.captures(engine)
        return replace(engine, in_flight=captures if self.in_engine else captures - 1)
