"""Warnings of what training survives, shown at the user's own line."""

from __future__ import annotations

import sys
import warnings

# Packages whose frames lie between this library and the user's call of ``fit`` or ``step``.
_BETWEEN = frozenset({"deepfreeze", "keras", "tf_keras", "tensorflow"})


class CheckpointWarning(UserWarning):
    """Something went wrong that training survives."""


def warn(message: object) -> None:
    """Warns at the innermost line of the stack that is neither this library's nor a framework's."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _BETWEEN:
        level, frame = level + 1, frame.f_back
    warnings.warn(str(message), CheckpointWarning, stacklevel=level)
