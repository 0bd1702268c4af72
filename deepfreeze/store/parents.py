"""The directories above a run that is new, where they are missing.

They are made as ``mkdir -p`` makes them, unless the place looks like that of a file system that is not mounted here: the checkpoints would
fill the node's own disk, and be gone with the node.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from deepfreeze.errors import RunError
from deepfreeze.store import durable, file_system
from deepfreeze.store.durable import DIRECTORY_MODE
from deepfreeze.store.failures import refused


def make(root: Path) -> list[Path]:
    """Makes the directories above ``root`` that are missing, durably. Returns them, the uppermost first; [] if there is nothing to make.
    RunError if the nearest directory that exists is ``/``, or a mount point with nothing in it; if something else is in the way; or if the
    system refuses. None of them is left then."""
    missing, nearest = _look(root)
    if not missing:
        return []
    _require_mounted(root, nearest)
    made: list[Path] = []
    folder = nearest
    try:
        # The job that made it may have been killed before its own sync. It may lie in a directory that this user can't open.
        with contextlib.suppress(OSError):
            durable.sync_dir(nearest.parent)
        for folder in missing:
            try:
                os.mkdir(folder, DIRECTORY_MODE)
                made.append(folder)
            except FileExistsError:  # another job has made it meanwhile
                if not folder.is_dir():
                    raise
            durable.sync_dir(folder.parent)
    except OSError as error:
        unmake(made)
        raise refused(folder, error) from error
    return made


def unmake(made: Iterable[Path]) -> None:
    """Removes the directories that ``make`` has made, but for those in which somebody else has put something."""
    for folder in reversed(list(made)):
        with contextlib.suppress(OSError):
            os.rmdir(folder)


def in_the_way(root: Path, folder: Path) -> RunError:
    """The error for what is in the way of the run ``root``: ``folder``, which is ``root`` or lies above it, is no directory."""
    expected, found = "a directory or nothing", "a file"
    todo = "choose another path, or move that file away"
    if folder.is_symlink() and not folder.exists():
        found = "a symbolic link to nothing"
        todo = f"is the file system mounted on this machine that {os.readlink(folder)} is on? If the link is wrong, correct it"
    if folder != root:
        expected, found = "directories or nothing above it", f"{folder}, {found}"
    return RunError(where=root, expected=expected, found=found, todo=todo)


def look_anew(root: Path) -> None:
    """Opens the directories above ``root``, and ``root`` itself. A client of NFS that has looked for a name before it was made says for up
    to a minute that there is none, unless it opens the directory of that name. Raises nothing."""
    for folder in [*reversed(root.absolute().parents), root]:
        with contextlib.suppress(OSError):
            os.close(os.open(folder, os.O_RDONLY | os.O_DIRECTORY))


def _look(root: Path) -> tuple[list[Path], Path]:
    """The missing directories above ``root``, the uppermost first, and the nearest directory that exists."""
    missing: list[Path] = []
    for folder in root.absolute().parents:
        try:
            mode = os.stat(folder).st_mode
        except FileNotFoundError:
            if folder.is_symlink():
                raise in_the_way(root, folder) from None
            missing.insert(0, folder)
        except NotADirectoryError:
            missing.insert(0, folder)  # a file is in the way, further up
        except OSError as error:
            raise refused(folder, error) from error
        else:
            if not stat.S_ISDIR(mode):
                raise in_the_way(root, folder)
            return missing, folder
    raise AssertionError("/ is a directory")


def _require_mounted(root: Path, nearest: Path) -> None:
    if nearest == Path(nearest.anchor):
        found = f"none but {nearest}"
    elif file_system.is_mount_point(nearest) and _is_empty(nearest):
        found = f"none but {nearest}, a mount point with nothing in it"
    else:
        return
    todo = f"is the file system mounted on this machine? If the path is right, make it first: mkdir -p {root.absolute().parent}"
    raise RunError(where=root, expected="a directory to make it in", found=found, todo=todo)


def _is_empty(folder: Path) -> bool:
    try:
        with os.scandir(folder) as entries:
            return next(entries, None) is None
    except OSError:
        return False  # what this user can't list may have something in it
