"""The exception for a failed call of the engine."""

from __future__ import annotations

from . import _table
from ._library import library


class EngineFault(RuntimeError):
    """A call of the engine failed. ``code``: one of the constants of this package (``TIMEOUT``, ``IO``, ...); ``message``: the engine's
    message, which names the file and the system's error."""

    def __init__(self, code: int, message: str) -> None:
        self.code, self.message = code, message
        super().__init__(code, message)

    def __str__(self) -> str:
        return self.message


def check(code: int) -> None:
    """Raises ``EngineFault`` unless ``code``, the result of a call, is OK. To be called in the same thread, before its next call: the
    library keeps a message for each thread."""
    if code != _table.OK:
        raise EngineFault(code, library().df_error().decode(errors="replace"))
