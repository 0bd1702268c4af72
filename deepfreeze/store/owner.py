"""Files of a run that an attempt writes while the run is its own."""

from __future__ import annotations

from deepfreeze.errors import RunError
from deepfreeze.format import names
from deepfreeze.store.failures import refused
from deepfreeze.store.run import END_THIS_JOB, Run


def put(run: Run, name: str, data: bytes, attempt: str | None = None) -> None:
    """Writes the run's file ``name``, whole and durable. The caller holds the run's lock. ``attempt``: the caller's; None for a caller that
    is none, such as ``prune``. RunError if another attempt has taken the run, or the system refuses."""
    try:
        if attempt is not None and (owner := _owner(run)) not in (None, attempt):
            found = f"attempt {owner}, which has taken the run"
            raise RunError(where=run.path, expected=f"attempt {attempt}", found=found, todo=END_THIS_JOB)
        run.store.put(name, data)
    except RunError:
        raise
    except OSError as error:
        raise refused(run.store.where(name), error) from error


def _owner(run: Run) -> str | None:
    """The attempt that has the run; None if the run does not say."""
    try:
        return run.store.read(names.OWNER_FILE, 64).decode(errors="replace").strip()
    except FileNotFoundError:
        return None
