"""The backends by name."""

from __future__ import annotations

from deepfreeze.engine.backend import BackendKind, Rescue
from deepfreeze.engine.backends.embedded import backend as embedded
from deepfreeze.engine.faults import EngineFault
from deepfreeze.engine.records import INVALID

TABLE: dict[str, BackendKind] = {"embedded": embedded.KIND}
#: The row that a training takes for as long as there is no option to name another one.
DEFAULT = "embedded"


def chosen() -> BackendKind:
    """The row that a training takes."""
    return TABLE[DEFAULT]


def rescue() -> Rescue:
    """The calls that finish what a dead attempt has left. ``EngineFault`` if the chosen backend has none."""
    found = chosen().can.rescue
    if found is None:
        raise EngineFault(INVALID, f"the backend {DEFAULT} can't finish what another one has left")
    return found
