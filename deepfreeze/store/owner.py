"""Small files of a run that an attempt writes while the run is its own, and that name the run they belong to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from deepfreeze.errors import END_THIS_JOB, CorruptError, RunError
from deepfreeze.format import names
from deepfreeze.store.failures import refused, unreadable
from deepfreeze.store.run import Run


class _Owned(Protocol):
    @property
    def run_id(self) -> str: ...


T = TypeVar("T", bound=_Owned)


def read(run: Run, name: str, limit: int, parse: Callable[[bytes, object], T], todo: str) -> T | None:
    """The content of the run's file ``name``; None if there is no such file. ``limit``: bytes that the file has at most; ``parse``: makes
    the content of the file's bytes, and of the file's path for its errors; ``todo``: the advice for a file of another run. CorruptError if
    it is damaged or another run's, RunError if the system does not read it, and the errors of ``parse``."""
    file = run.store.where(name)
    try:
        found = parse(run.store.read(name, limit), file)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unreadable(file, error) from error
    if found.run_id != run.run_id:
        raise CorruptError(where=file, expected=f"{name} of run {run.run_id}", found=found.run_id, todo=todo)
    return found


def put(run: Run, name: str, data: bytes, attempt: str | None = None) -> None:
    """Writes the run's file ``name``, whole and durable. The caller holds the run's lock. ``attempt``: the caller's; None for a caller that
    is none, such as ``prune``. RunError if another attempt has taken the run, or the system refuses."""
    try:
        if attempt is not None and (owner := owner_of(run)) not in (None, attempt):
            found = f"attempt {owner}, which has taken the run"
            raise RunError(where=run.path, expected=f"attempt {attempt}", found=found, todo=END_THIS_JOB)
        run.store.put(name, data)
    except RunError:
        raise
    except OSError as error:
        raise refused(run.store.where(name), error) from error


def owner_of(run: Run) -> str | None:
    """The attempt that has the run; None if the run does not say."""
    try:
        return run.store.read(names.OWNER_FILE, 64).decode(errors="replace").strip()
    except FileNotFoundError:
        return None
