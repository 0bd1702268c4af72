"""Chooses the directory in which a node keeps its shards until they are external: memory-backed if there is enough memory, else on the
local disk if there is enough room, else none."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

from deepfreeze.errors import OptionError
from deepfreeze.format import names
from deepfreeze.tiers import node_memory

# The greatest part of the free bytes that slots may take with local="auto". The rest is left to the training.
_SHARE = 0.5


def candidates(local: str | os.PathLike | None) -> list[Path]:
    """The base directories that the option ``local`` allows, the best one first. ``local="auto"``: /dev/shm and the directory for
    temporary files; a path: that directory; None: no directory. OptionError if the path is no existing directory."""
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
    """The directory of this user's run below a base directory. The engine makes it."""
    return base / names.local_dir(os.geteuid(), run_id)


def choose(local: str | os.PathLike | None, nbytes: int) -> Path | None:
    """The base directory for the slots of all ranks of this node, ``nbytes`` bytes together. None if ``local`` is None, or if it is
    "auto" and no base directory has room. A directory that the user named is not asked for its free bytes: the engine logs it when
    it is full. The memory limit over this process counts for all ranks of the node together, which may choose the disk without need,
    but never too much memory."""
    for base in candidates(local):
        if local == "auto" and nbytes > _SHARE * _free(base):
            continue
        return base
    return None


def discard(folder: Path) -> None:
    """Removes a run's ``directory`` if it is empty, and then the user's directory above it if that is empty. Symbolic links are not
    followed."""
    with contextlib.suppress(OSError):
        user = os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.rmdir(folder.name, dir_fd=user)
        finally:
            os.close(user)
        folder.parent.rmdir()


def _free(base: Path) -> int:
    """Bytes that may still be written to a base directory."""
    free = shutil.disk_usage(base).free
    return min(free, node_memory.available()) if node_memory.is_memory(base) else free
