"""Where a node keeps its shards until they are external: memory-backed if there is plenty, else disk, else nowhere."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

from deepfreeze.errors import OptionError
from deepfreeze.format import names
from deepfreeze.tiers import node_memory

# "auto" takes at most this share of what is free: the rest is the training's.
_SHARE = 0.5


def candidates(local: str | os.PathLike | None) -> list[Path]:
    """The base directories that ``local`` allows, best first: ``"auto"``, a directory, or None."""
    if local is None:
        return []
    if local == "auto":
        shm = Path("/dev/shm")
        bases = [shm] if shm.is_dir() and os.access(shm, os.W_OK) else []
        return [*bases, Path(tempfile.gettempdir())]
    path = Path(local)
    if not path.is_dir():
        raise OptionError(
            where=f"local={os.fspath(local)!r}",
            expected='an existing directory on node-local storage, "auto" or None',
            found="no such directory",
            todo="create it on every node, or pass local=None to write to the external store alone",
        )
    return [path]


def directory(base: Path, run_id: str) -> Path:
    """This user's and run's directory below a base; the engine makes it."""
    return base / names.local_dir(os.geteuid(), run_id)


def choose(local: str | os.PathLike | None, need: int) -> Path | None:
    """The base directory for slots of ``need`` bytes in all on this node; None if there is no room, or no local tier is
    wanted. An explicit directory is taken as it is: when it fills up, the engine says so. A limit of memory over one rank alone
    is taken for one over all ranks of the node: that errs on the safe side."""
    for base in candidates(local):
        if local == "auto" and need > _SHARE * _free(base):
            continue
        return base
    return None


def discard(folder: Path) -> None:
    """Removes a ``directory`` if nothing is left in it, and its parent likewise; never what a symbolic link leads to."""
    with contextlib.suppress(OSError):
        user = os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.rmdir(folder.name, dir_fd=user)
        finally:
            os.close(user)
        folder.parent.rmdir()


def _free(base: Path) -> int:
    free = shutil.disk_usage(base).free
    return min(free, node_memory.available()) if node_memory.is_memory(base) else free
