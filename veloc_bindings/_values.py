"""Python's values, converted to those that the C library takes."""

from __future__ import annotations

import ctypes as c
import os
from typing import Any

FOREVER = 2**63  # milliseconds; the engine waits for a year at most


def milliseconds(timeout: float | None) -> int:
    """A timeout in seconds; None: without a bound."""
    return FOREVER if timeout is None else min(max(0, round(timeout * 1000)), FOREVER)


def path_bytes(path: str | os.PathLike[str]) -> bytes:
    """A path."""
    return os.fsencode(path)


def byte_array(value: bytes, size: int, name: str) -> c.Array:
    """Exactly ``size`` bytes. ``ValueError``, which calls them ``name``, if they are not as many."""
    if len(value) != size:
        raise ValueError(f"{name}: expected {size} bytes; found {len(value)}")
    return (c.c_uint8 * size).from_buffer_copy(value)


def address(data: Any) -> int:
    """The address of a buffer's first byte; an address itself is returned as it is."""
    if isinstance(data, int):
        return data
    interface = getattr(data, "__array_interface__", None)
    if interface is not None:
        return interface["data"][0]  # a numpy array, which may be read-only
    view = memoryview(data)
    if view.readonly:
        # Of all read-only buffers ctypes gives the address of ``bytes`` alone.
        if isinstance(data, bytes):
            return c.cast(c.c_char_p(data), c.c_void_p).value or 0
        raise TypeError("a read-only buffer must be given as its address, bytes or a numpy array")
    return c.addressof(c.c_char.from_buffer(view.cast("B"))) if view.nbytes else 0
