"""The size of a training's engine: the options with which it is opened, and the place of its slots, as its captures need them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from deepfreeze.engine import ways
from deepfreeze.engine.backends import table
from deepfreeze.engine.faults import Faults
from deepfreeze.engine.memory_bound import MemoryBound
from deepfreeze.engine.open_engine import unsupported
from deepfreeze.engine.options import MOST_TUNED, Engine
from deepfreeze.freeze import node_tier
from deepfreeze.freeze.capture_places import CapturePlan
from deepfreeze.freeze.settings import SaverSettings
from deepfreeze.notices import Notify
from deepfreeze.ranks.nodes import Nodes
from deepfreeze.ranks.world import World, each, on_rank_0
from deepfreeze.tiers.tier import Tier


@dataclass(frozen=True)
class Captures:
    """This rank's captures. ``nbytes``: bytes of the regions of each; ``in_engine``: whether they lie in the engine's memory."""

    plan: CapturePlan
    nbytes: int
    in_engine: bool


@dataclass(frozen=True)
class EngineSize:
    """``options``: of this rank's engine, with a number for each; ``local``: the tier of its slots, and the directory below which they are
    made, None without a local tier; ``tier``: the kind of that tier, "memory", "disk" or "none"."""

    options: Engine
    local: tuple[Tier, Path] | None
    tier: str

    @property
    def most_uncommitted(self) -> int:
        """How many checkpoints may be captured and not yet committed, whatever lies on the local tier otherwise."""
        options = self.options
        return options.uncommitted or (options.in_flight if self.local is None else options.slots) or 0


def size(
    settings: SaverSettings, captures: Captures, run: str, file_size: int, world: World, nodes: Nodes, notify: Notify
) -> EngineSize:
    """Collective. ``run``: the path of the run; ``file_size``: bytes of the model file; ``notify``: is told if no local tier has room, if a
    probe has chosen the page cache, or if there are more transfers than checkpoints on their way.

    ``OptionError`` for a wrong ``local`` or too little ``memory``, ``UnsupportedError`` if the backend knows no bound of the memory. A rank
    without an error of its own raises ``WorldError`` then."""
    of_ranks = world.gather(each(world, lambda: _bounded(settings, captures, run)))
    # All ranks hold as many captures as the rank whose captures are largest.
    engine = min(of_ranks, key=lambda one: one.in_flight or 0)
    counted = engine.counted()
    on_disk, in_memory = counted.slots or 0, _slots_in_memory(counted, settings.memory)
    needs = captures.nbytes * on_disk, captures.nbytes * in_memory
    local = node_tier.choose(settings.local, *needs, run, world, nodes, notify)
    tier = node_tier.kind(None if local is None else local[1])
    io = on_rank_0(world, lambda: ways.choose(counted, run, file_size, notify))
    options = replace(counted, slots=in_memory if tier == "memory" else on_disk, io=io)
    found = EngineSize(options, local, tier)
    most = found.most_uncommitted
    if settings.tuned:
        # The search goes up to as many transfers as there may be: with "replace" one checkpoint must wait.
        most_transfers = most - (counted.when_full == "replace")
        return replace(found, options=replace(options, transfers=max(1, min(MOST_TUNED, most_transfers))))
    if engine.transfers > most and world.rank == 0:
        message = f"Engine(transfers={engine.transfers}): at most {most} checkpoints are on their way here at once"
        notify("warning", message)
    return found


def _bounded(settings: SaverSettings, captures: Captures, run: str) -> Engine:
    """The options of this rank's engine. With ``memory=`` they have the number of captures that it allows."""
    if settings.memory is None:
        return settings.engine
    of = table.chosen().can.capture_size
    if of is None:
        raise unsupported("memory=")
    with Faults(run, settings.timeout).translated("the bytes of a capture"):
        nbytes = captures.plan.nbytes(of, settings.engine.chunk_bytes)
    return MemoryBound(settings.memory, nbytes, captures.in_engine).bounded(settings.engine)


def _slots_in_memory(engine: Engine, memory: int | None) -> int:
    """How many slots there are if they are memory: with ``memory=`` as many as captures. A slot is held until its checkpoint is committed,
    a buffer until it is written, so memory for one capture is used as a buffer, and there is no slot."""
    if memory is None:
        return engine.slots or 0
    return 0 if engine.in_flight == 1 else engine.in_flight or 0
