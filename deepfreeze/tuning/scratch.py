"""The scratch run of a tuning: beside the run that is tuned, so that it is on the same store, and gone when the tuning is over."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from deepfreeze.errors import OptionError
from deepfreeze.format.names import new_id
from deepfreeze.store.stores import directory


def new_name() -> str:
    """The end of a scratch run's name, which no other one has."""
    return f"tune-{new_id()[:8]}"


def beside(run: str | os.PathLike[str], name: str) -> str:
    """The path of the scratch run whose name ends with ``name``, beside ``run``. ``OptionError`` if ``run`` can't be a run's directory."""
    return f"{directory(run)}.{name}"


@contextlib.contextmanager
def scratch(run: str | os.PathLike[str]) -> Iterator[str]:
    """The path of a scratch run beside ``run``, which is deleted at the end of the block. ``OptionError`` if there is no directory to put
    it in."""
    path = beside(run, new_name())
    parent = Path(path).parent
    if not parent.is_dir():
        todo = "name a run whose parent directory is there: it tells which store is meant"
        raise OptionError(where=f"run {run}", expected=f"a directory {parent}", found="none", todo=todo)
    try:
        yield path
    finally:
        remove(path)


def remove(path: str) -> None:
    """Deletes a scratch run, as far as the system lets it. Raises nothing."""
    shutil.rmtree(path, ignore_errors=True)
