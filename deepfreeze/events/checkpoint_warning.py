"""Warnings of failures that do not end training. Python shows each of them with the line of the user's program that called ``fit`` or
``step``."""

from __future__ import annotations

import sys
import warnings

# The packages whose functions lie on the stack between this module and the user's call of ``fit`` or ``step``.
_BETWEEN = frozenset({"deepfreeze", "keras", "tf_keras", "tensorflow"})


class CheckpointWarning(UserWarning):
    """A failure that does not end training: a checkpoint was not committed, or ranks differ, for example."""


def warn(message: object) -> None:
    """Issues a ``CheckpointWarning`` for the innermost line of the stack that is neither in this library nor in a framework."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _BETWEEN:
        level, frame = level + 1, frame.f_back
    # A path may have bytes that are no text, and whoever collects warnings may take UTF-8 alone.
    text = str(message).encode("utf-8", "backslashreplace").decode()
    warnings.warn(text, CheckpointWarning, stacklevel=level)
