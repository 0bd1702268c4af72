"""The scratch run of a tuning: beside the run that is tuned, so that it is on the same store, and gone when the tuning is over."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from deepfreeze.errors import Error, LockedError, OptionError
from deepfreeze.format.names import new_id
from deepfreeze.store.run import Run
from deepfreeze.store.stores import directory

_PATIENCE = 10.0  # seconds for which a job of a scratch run may go on when its program has ended
_LOOK = 0.1


def new_name() -> str:
    """The end of a scratch run's name, which no other one has."""
    return f"tune-{new_id()[:8]}"


def beside(run: str | os.PathLike[str], name: str) -> str:
    """The path of the scratch run whose name ends with ``name``, beside ``run``. ``OptionError`` if ``run`` can't be a run's directory."""
    return f"{os.path.realpath(directory(run))}.{name}"


@contextlib.contextmanager
def scratch(run: str | os.PathLike[str]) -> Iterator[str]:
    """The path of a scratch run beside ``run``, which is deleted at the end of the block. ``OptionError`` if there is no directory to put
    it in."""
    path = beside(run, new_name())
    remove_left(os.path.realpath(directory(run)))
    parent = Path(path).parent
    if not parent.is_dir():
        todo = "name a run whose parent directory is there: it tells which store is meant"
        raise OptionError(where=str(run), expected=f"a directory {parent}", found="none", todo=todo)
    try:
        yield path
    finally:
        remove(path)


def remove(path: str, local: str | None = "auto") -> None:
    """Deletes a scratch run, and its slots on this node's local tier (``local``: the program's option), as far as the system lets it. Waits
    some seconds for a job that has not ended yet. Raises nothing."""
    from deepfreeze.tiers import tiers  # with them comes the engine, which most commands do without

    end = time.monotonic() + _PATIENCE
    while os.path.isdir(path):
        with contextlib.suppress(Error, OSError):
            run = Run.open(path)
            try:
                lock = run.store.lock()
            except LockedError:
                if time.monotonic() < end:
                    time.sleep(_LOOK)
                    continue
            else:
                lock.release()
            for tier in tiers.of(local):
                tier.clear(run.run_id)
        shutil.rmtree(path, ignore_errors=True)
        if time.monotonic() >= end:
            return


def remove_left(run: str) -> None:
    """Deletes the scratch runs of ``run`` that a tuning has left which was killed. Raises nothing."""
    folder, name = os.path.split(run)
    with contextlib.suppress(OSError):
        for one in os.listdir(folder):
            if re.fullmatch(re.escape(name) + r"\.tune-[0-9a-f]{8}", one) and not _is_used(os.path.join(folder, one)):
                remove(os.path.join(folder, one))


def _is_used(path: str) -> bool:
    try:
        Run.open(path).store.lock().release()
    except LockedError:
        return True
    except Error:
        pass
    return False
