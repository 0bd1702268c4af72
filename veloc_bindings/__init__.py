"""Python bindings of the native engine, made with ctypes and the standard library alone. Importing this package does not load the engine's
library: the first call does."""

from ._fault import EngineFault
from ._library import LibraryError, headers
from ._library import find as library
from ._table import (
    CAPTURED,
    CLOSED,
    CORRUPT,
    DIVERGED,
    EXTERNAL,
    INCOMPLETE,
    INFORMS,
    INVALID,
    IO,
    LOCAL,
    NO_SPACE,
    OK,
    REFUSE_ALL,
    REFUSE_FIRST,
    REFUSE_NONE,
    SUPERSEDED,
    TAKEN,
    TIMEOUT,
)
from .area import Area, GroupNote, register_tensorflow
from .engine import EmbeddedEngine, Report, UnderWay, capture_size, region_array
from .without_engine import (
    SlotInfo,
    commit,
    crc32c,
    newest,
    probe,
    slot_inspect,
    slot_transfer,
    version,
)

__all__ = [
    "CAPTURED",
    "CLOSED",
    "CORRUPT",
    "DIVERGED",
    "EXTERNAL",
    "INCOMPLETE",
    "INFORMS",
    "INVALID",
    "IO",
    "LOCAL",
    "NO_SPACE",
    "OK",
    "REFUSE_ALL",
    "REFUSE_FIRST",
    "REFUSE_NONE",
    "SUPERSEDED",
    "TAKEN",
    "TIMEOUT",
    "Area",
    "EmbeddedEngine",
    "EngineFault",
    "GroupNote",
    "LibraryError",
    "UnderWay",
    "Report",
    "SlotInfo",
    "capture_size",
    "commit",
    "crc32c",
    "headers",
    "library",
    "newest",
    "probe",
    "region_array",
    "register_tensorflow",
    "slot_inspect",
    "slot_transfer",
    "version",
]
