"""Bindings of the native engine: ctypes and the standard library, nothing else. Importing loads no library."""

from ._library import LibraryError
from ._table import (
    CAPTURED,
    CLOSED,
    CORRUPT,
    EXTERNAL,
    INCOMPLETE,
    INVALID,
    IO,
    LOCAL,
    NO_SPACE,
    OK,
    TIMEOUT,
)
from .engine import (
    Engine,
    EngineFault,
    Report,
    SlotInfo,
    commit,
    crc32c,
    region_array,
    slot_inspect,
    slot_transfer,
    version,
)

__all__ = [
    "CAPTURED",
    "CLOSED",
    "CORRUPT",
    "EXTERNAL",
    "INCOMPLETE",
    "INVALID",
    "IO",
    "LOCAL",
    "NO_SPACE",
    "OK",
    "TIMEOUT",
    "Engine",
    "EngineFault",
    "LibraryError",
    "Report",
    "SlotInfo",
    "commit",
    "crc32c",
    "region_array",
    "slot_inspect",
    "slot_transfer",
    "version",
]
