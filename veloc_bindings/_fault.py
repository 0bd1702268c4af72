"""A failed call of the engine as an exception."""

from __future__ import annotations

from . import _table
from ._library import library


class EngineFault(RuntimeError):
    """A call failed. ``code`` is one of the constants (``TIMEOUT``, ``IO``, ...), ``message`` the engine's own words."""

    def __init__(self, code: int, message: str) -> None:
        self.code, self.message = code, message
        super().__init__(code, message)

    def __str__(self) -> str:
        return self.message


def check(code: int) -> None:
    """Raises ``EngineFault`` unless a call returned OK."""
    if code != _table.OK:
        raise EngineFault(code, library().df_error().decode(errors="replace"))
