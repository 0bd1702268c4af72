"""How many captures the bytes allow that captures may hold on each rank (``memory=``; M of PCcheck, ASPLOS 2025, section 3)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from deepfreeze.errors import OptionError
from deepfreeze.freeze.settings import Engine
from deepfreeze.ranks.world import World, each

_MOST = 1024  # captures, as for Engine(in_flight=)


@dataclass(frozen=True)
class MemoryBound:
    """``memory``: the bytes. ``capture``: bytes of each capture of this rank. ``in_engine``: whether captures lie in the engine's memory.
    Otherwise each is taken before the engine is asked for room, so there is one capture more than the engine knows of."""

    memory: int
    capture: int
    in_engine: bool = True

    def captures(self, engine: Engine) -> int:
        """How many captures may be held at once. ``OptionError`` if the memory holds too few."""
        # Captures in the engine's memory begin at pages, and so do the extents that the local tier is given.
        blocks = engine.chunk_bytes * (engine.writers if self.in_engine else 2 * engine.writers + 1)
        least = 1 if self.in_engine else 2
        found = (self.memory - blocks) // max(1, self.capture)
        if found >= least:
            return min(found, _MOST)
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

    def counted(self, engine: Engine, world: World) -> Engine:
        """Collective. The same options, with the numbers of captures and slots that this bound allows: on all ranks those of the rank
        whose captures are largest. ``OptionError`` as ``captures``; a rank without an error of its own raises ``WorldError`` then."""
        captures = min(world.gather(each(world, lambda: self.captures(engine))))
        return replace(engine, in_flight=captures if self.in_engine else captures - 1, slots=max(2, captures))
