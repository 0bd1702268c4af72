"""The records with which a backend answers, and their codes. Everybody above the engine's door takes them from here."""

from __future__ import annotations

from veloc_bindings import (
    CLOSED,
    CORRUPT,
    DIVERGED,
    INCOMPLETE,
    INFORMS,
    INVALID,
    IO,
    NO_SPACE,
    OK,
    SUPERSEDED,
    TAKEN,
    TIMEOUT,
    Report,
    SlotInfo,
    StepMark,
    UnderWay,
)

__all__ = [
    "CLOSED",
    "CORRUPT",
    "DIVERGED",
    "INCOMPLETE",
    "INFORMS",
    "INVALID",
    "IO",
    "NO_SPACE",
    "OK",
    "SUPERSEDED",
    "TAKEN",
    "TIMEOUT",
    "Report",
    "SlotInfo",
    "StepMark",
    "UnderWay",
]
