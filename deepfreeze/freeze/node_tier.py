"""The local tier that the ranks of this node put their slots on."""

from __future__ import annotations

import os
from pathlib import Path

from deepfreeze.notices import Notify
from deepfreeze.ranks.nodes import Nodes
from deepfreeze.ranks.world import World, each
from deepfreeze.tiers import node_memory, tiers
from deepfreeze.tiers.tier import Tier


def choose(
    local: str | os.PathLike | None,
    nbytes: int,
    in_memory: int,
    run: str,
    world: World,
    nodes: Nodes,
    notify: Notify,
) -> tuple[Tier, Path] | None:
    """Collective. The tier for this node's slots, and the directory below which they are made; None if there is none. ``local``: the
    option; ``nbytes``: of this rank's slots on a disk; ``in_memory``: of its slots if they are memory, 0 if they may not be. The ranks of
    a node share the room on it, so the needs of all of them are added up. ``notify``: one rank of a node on which no tier has room is
    told. ``OptionError`` for a wrong ``local``; a rank without an error of its own raises ``WorldError`` then."""
    needs = world.gather((nbytes, in_memory))
    need, of_memory = (sum(needs[rank][kind] for rank in nodes.ranks) for kind in (0, 1))
    chosen = each(world, lambda: tiers.choose(local, need, of_memory))
    lacks = chosen is None and local is not None
    lacking = world.gather(lacks)
    if lacks and world.rank == min(rank for rank in nodes.ranks if lacking[rank]):  # one rank speaks for the node
        host = nodes.here.host
        why = f"no room for {need} bytes on a local tier of {host}"
        if not in_memory:
            why = f"memory= holds one capture, so no checkpoint waits in memory of {host}"
        notify("warning", f"{why}: writing to {run} directly")
    return chosen


def kind(base: Path | None) -> str:
    """What the slots below ``base`` lie on, by the file system that is mounted there: "memory", "disk", or "none" without a directory."""
    if base is None:
        return "none"
    return "memory" if node_memory.is_memory(base) else "disk"
