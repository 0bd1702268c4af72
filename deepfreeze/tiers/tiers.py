"""The tiers there are. Another one is a row of the table."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from deepfreeze.errors import OptionError
from deepfreeze.tiers.local_tier import LocalTier
from deepfreeze.tiers.tier import Tier

# The greatest part of the free bytes that slots may take with local="auto". The rest is left to the training.
_SHARE = 0.5


def _memory() -> Tier | None:
    shm = Path("/dev/shm")
    return LocalTier(shm, _SHARE) if shm.is_dir() and os.access(shm, os.W_OK) else None


def _disk() -> Tier:
    return LocalTier(Path(tempfile.gettempdir()), _SHARE)


#: Name -> a function that makes the tier, or returns None on a machine that has no such tier. The best one comes first.
TIERS: dict[str, Callable[[], Tier | None]] = {"memory": _memory, "disk": _disk}


def of(local: str | os.PathLike | None) -> list[Tier]:
    """The tiers that the option ``local`` allows, the best one first. ``local="auto"``: those of the table; a path: the directory there;
    None: none. ``OptionError`` if the path is no existing directory."""
    if local is None:
        return []
    if local == "auto":
        return [tier for make in TIERS.values() if (tier := make()) is not None]
    path = Path(local)
    if not path.is_dir():
        raise OptionError(
            where=f"local={os.fspath(local)!r}",
            expected='an existing directory on node-local storage, "auto" or None',
            found="no such directory",
            todo="create it on every node, or pass local=None to write to the external store alone",
        )
    return [LocalTier(path, None)]


def choose(local: str | os.PathLike | None, nbytes: int) -> tuple[Tier, Path] | None:
    """The tier for the slots of all ranks of this node, ``nbytes`` bytes together, and the directory below which the engine makes them.
    None if ``local`` allows no tier, or none has room. The memory limit over this process counts for all ranks of the node together,
    which may choose the disk without need, but never too much memory."""
    for tier in of(local):
        base = tier.need(nbytes)
        if base is not None:
            return tier, base
    return None
