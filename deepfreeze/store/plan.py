"""A run's plan.json: read by anybody, changed one section at a time by the job that has the run."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from deepfreeze.errors import CorruptError, NewerError
from deepfreeze.format import names
from deepfreeze.format.plan_file import MAX_PLAN, REPLACED, PlanFile
from deepfreeze.notices import Notify, unheard
from deepfreeze.store import owner
from deepfreeze.store.run import Run

_TURN = threading.Lock()  # a section is added to those that the file has


def read_plan(run: Run) -> PlanFile | None:
    """The content of plan.json; None if there is no such file. CorruptError if it is damaged or another run's, NewerError if a newer
    version wrote it, RunError if the system does not read it."""
    return owner.read(run, names.PLAN_FILE, MAX_PLAN, PlanFile.from_bytes, REPLACED)


def read_section(run: Run, name: str) -> Mapping[str, Any] | None:
    """The section ``name`` of plan.json; None if there is no such file, or no such section. Errors as ``read_plan``."""
    found = read_plan(run)
    return None if found is None else found.sections.get(name)


def put_section(
    run: Run, name: str, section: Mapping[str, Any], attempt: str | None = None, notify: Notify = unheard
) -> None:
    """Writes the section ``name`` of plan.json; the others stay as they are. The caller holds the run's lock. Threads of a process take
    turns. ``attempt``: the caller's, None for a caller that is none. A damaged file, or another run's, counts as none, of which ``notify``
    is told.

    NewerError if a newer version wrote the file, which then stays; RunError if another attempt has taken the run, or the system refuses;
    ValueError for a section that no plan can have."""
    with _TURN:
        try:
            before = read_plan(run)
        except NewerError:
            raise
        except CorruptError as error:
            notify("warning", f"{error} It is replaced now, and what it knew beside {name} is lost.")
            before = None
        plan = (before or PlanFile(run.run_id)).with_section(name, section)
        owner.put(run, names.PLAN_FILE, plan.to_bytes(), attempt)
