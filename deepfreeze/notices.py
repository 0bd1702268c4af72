"""What a room has to say that is no error, such as "step 40 moved to abandoned/". The caller decides who hears it: a training makes events
of it, and a function that is called by itself, such as ``deepfreeze.restore``, has the logger show it."""

from __future__ import annotations

from collections.abc import Callable

#: Called with a level ("info" or "warning") and a message for the user. Takes microseconds, and may be called from any thread.
Notify = Callable[[str, str], None]


def unheard(level: str, message: str) -> None:
    """A ``Notify`` for messages that the user has heard already."""
