"""The nodes of a job: which ranks share a machine, and so its memory, its local tier and its client of the store.

A node is known by its host name and the boot id of its kernel. The host name alone would not do: cloned machines, and containers on
several machines, may have the same one. The boot id alone would not do either: containers on one machine, which share no files, have
the same boot id and different host names.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from deepfreeze.ranks.world import World

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, order=True)
class Node:
    """A machine, or a container on one. ``host``: its host name, for messages; ``boot``: the id that its kernel drew when it was booted,
    "" where the system has none."""

    host: str
    boot: str

    @classmethod
    def here(cls, boot_id: Path = _BOOT_ID) -> Node:
        """The node of this process. ``boot_id``: the file that has the kernel's id."""
        try:
            boot = boot_id.read_text().strip()
        except OSError:
            boot = ""
        return cls(socket.gethostname(), boot)

    @property
    def name(self) -> str:
        """The node's name, unlike that of every other node of the job."""
        return f"{self.host}/{self.boot}"


@dataclass(frozen=True)
class Nodes:
    """The nodes of a job as one rank sees them. ``rank``: that rank; ``by_rank``: the node of each rank."""

    rank: int
    by_rank: tuple[Node, ...]

    @classmethod
    def gather(cls, world: World, node: Node | None = None) -> Nodes:
        """Collective. ``node``: this rank's, None for the node of this process."""
        return cls(world.rank, tuple(world.gather(node or Node.here())))

    @property
    def here(self) -> Node:
        """This rank's node."""
        return self.by_rank[self.rank]

    @cached_property
    def ranks(self) -> tuple[int, ...]:
        """The ranks on this rank's node, ascending."""
        return tuple(rank for rank, node in enumerate(self.by_rank) if node == self.here)

    @property
    def cores(self) -> float:
        """How many cores this rank has: those that it is bound to, but no more than an equal part of the machine's, because ranks that are
        not bound, or are bound to the same cores, share them."""
        return min(len(os.sched_getaffinity(0)), (os.cpu_count() or 1) / len(self.ranks))

    @property
    def lowest(self) -> int:
        """The lowest rank on this rank's node, which speaks for the node."""
        return self.ranks[0]

    @property
    def leads(self) -> bool:
        """Whether this rank is the lowest one of its node."""
        return self.rank == self.lowest
