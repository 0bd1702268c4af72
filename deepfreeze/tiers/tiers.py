"""The tiers there are. Another one is a row of the table, which ``add`` enters."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from deepfreeze.errors import OptionError
from deepfreeze.tiers import node_memory
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


def add(name: str, make: Callable[[], Tier | None], before: str | None = None) -> None:
    """Enters a tier into the table, for ``local="auto"``. A row of the same name gives way to it.

    ``make``: called on every rank when a job starts and when its engine is opened; returns the tier, or None on a machine that has none.
    ``before``: the row that is asked after this one; None puts it last. All ranks, and every later job of the run that is to find what
    a dead job left, have the same rows, so call ``add`` in the script. ``OptionError`` if ``before`` is no other row."""
    rows = [row for row in TIERS.items() if row[0] != name]
    names = [row[0] for row in rows]
    if before is not None and before not in names:
        raise OptionError(
            where=f"deepfreeze.tiers.add({name!r}, before=)",
            expected=f"another row of the table: {', '.join(names)}",
            found=repr(before),
            todo="name one of these rows, or leave before= out",
        )
    rows.insert(len(rows) if before is None else names.index(before), (name, make))
    TIERS.clear()
    TIERS.update(rows)


def of(local: str | os.PathLike | None) -> list[Tier]:
    """The tiers that the option ``local`` allows, the best one first. ``local="auto"``: those of the table; a path: the directory there;
    None: none. ``OptionError`` if the path is no existing directory, or a row of the table makes no tier."""
    if local is None:
        return []
    if local == "auto":
        return [tier for name, make in TIERS.items() if (tier := _made(name, make)) is not None]
    path = Path(local)
    if not path.is_dir():
        raise OptionError(
            where=f"local={os.fspath(local)!r}",
            expected='an existing directory on node-local storage, "auto" or None',
            found="no such directory",
            todo="create it on every node, or pass local=None to write to the external store alone",
        )
    return [LocalTier(path, None)]


def _made(name: str, make: Callable[[], Tier | None]) -> Tier | None:
    """The tier of a row. ``OptionError`` that names the row if there is none because the row is wrong."""
    failure = None
    try:
        tier = make()
        if tier is None or isinstance(tier, Tier):
            return tier
        found = f"{tier!r:.200}, which lacks methods"
    except Exception as error:
        found, failure = repr(error), error
    raise OptionError(
        where=f"the tier {name!r}",
        expected="an object with the methods of deepfreeze.tiers.Tier, or None where there is no such tier",
        found=found,
        todo="mend the function that was given to deepfreeze.tiers.add",
    ) from failure


def choose(local: str | os.PathLike | None, nbytes: int, in_memory: int | None = None) -> tuple[Tier, Path] | None:
    """The tier for the slots of all ranks of this node, ``nbytes`` bytes together, and the directory below which the engine makes them.
    None if ``local`` allows no tier, or none has room. The memory limit over this process counts for all ranks of the node together,
    which may choose the disk without need, but never too much memory. ``in_memory``: the bytes of slots that are
    memory, 0 if none may be; None: ``nbytes``."""
    for tier in of(local):
        base = tier.need(nbytes)
        if base is not None and in_memory is not None and node_memory.is_memory(base):
            base = tier.need(in_memory) if in_memory else None
        if base is not None:
            return tier, base
    return None
