"""Named values: the section of optional values that a record and a slot have since version 2 (docs/format.md, "Named values"). A reader
skips the names that it does not know."""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping

from deepfreeze.errors import CorruptError
from deepfreeze.format import crc32c
from deepfreeze.format.strict_json import DAMAGED

ATTACHMENTS = (
    "attachments"  # the states of the user's objects and of the random number generators, by ``format/state_tree``
)
MANIFEST = "manifest"  # rank 0's record: the manifest's named values, as JSON text (``format/manifest_values``)

_HEAD = struct.Struct("<IIQ")  # checksum of the value, bytes of the name, bytes of the value
_NAME = re.compile(rb"[a-z0-9_]{1,64}\Z")


def encode(values: Mapping[str, bytes]) -> bytes:
    """The section of these values. ValueError for a name that is not 1 to 64 lower-case letters, digits and underscores."""
    parts = []
    for name, value in sorted(values.items()):
        key = name.encode()
        if not _NAME.match(key):
            raise ValueError(f"{name!r} is no name of a value")
        parts += [_HEAD.pack(crc32c.value(value), len(key), len(value)), key, value]
    return b"".join(parts)


def decode(section: bytes | memoryview, where: object) -> dict[str, bytes]:
    """The values by name, as copies. CorruptError (at ``where``) unless ``encode`` would give exactly ``section``."""
    values: dict[str, bytes] = {}
    at, before = 0, b""
    while at < len(section):
        if len(section) - at < _HEAD.size:
            raise _error(where, "the head of a named value", f"{len(section) - at} bytes")
        crc, key_size, size = _HEAD.unpack_from(section, at)
        at += _HEAD.size
        if key_size > len(section) - at or size > len(section) - at - key_size:
            raise _error(where, "named values inside of their section", f"one of {size} bytes")
        key = bytes(section[at : at + key_size])
        if not _NAME.match(key) or key <= before:
            raise _error(where, "names of values, in ascending order", f"{key[:64]!r}")
        at, before = at + key_size, key
        value = bytes(section[at : at + size])
        at += size
        actual = crc32c.value(value)
        if crc != actual:
            raise _error(where, f"CRC32C {crc:08x} of the value {key.decode()}", f"{actual:08x}")
        values[key.decode()] = value
    return values


def _error(where: object, expected: str, found: str) -> CorruptError:
    return CorruptError(where=where, expected=expected, found=found, todo=DAMAGED)
