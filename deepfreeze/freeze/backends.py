"""The backends there are, by name. Another one is a row of this table."""

from __future__ import annotations

from deepfreeze.freeze.backend import Backend
from deepfreeze.freeze.embedded_backend import EmbeddedBackend

BACKENDS: dict[str, type[Backend]] = {"embedded": EmbeddedBackend}
#: The row that a training takes for as long as there is no option to name another one.
DEFAULT = "embedded"


def chosen() -> type[Backend]:
    """The backend that a training takes."""
    return BACKENDS[DEFAULT]
