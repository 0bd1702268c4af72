"""CRC32C by the engine's library. Other Python threads run while it computes."""

from __future__ import annotations

from typing import Any

import veloc_bindings


def crc32c(data: Any, crc: int = 0) -> int:
    """The CRC32C of a buffer. ``crc``: the checksum of the bytes before the buffer, if it continues some; 0 otherwise. ``LibraryError`` if
    the library is missing."""
    return veloc_bindings.crc32c(data, crc)
