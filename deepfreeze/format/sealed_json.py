"""JSON files whose last key is the CRC32C of every byte before it: ``run.json``, ``manifest.json``, ``configs/ATTEMPT.json``
(docs/format.md). The last key has exactly one spelling in each file, so that no byte of a file is uncovered."""

from __future__ import annotations

import re

from deepfreeze.errors import CorruptError
from deepfreeze.format import crc32c
from deepfreeze.format.strict_json import DAMAGED, Fields, parse_object

KEY = "crc32c"
# The end of a file that is one line, and of one with a key to a line.
ONE_LINE = re.compile(rb', "crc32c": "([0-9a-f]{8})"\}\n\Z')
LINES = re.compile(rb'  "crc32c": "([0-9a-f]{8})"\n\}\n\Z')
_LONGEST_END = 64  # bytes: searching the whole of a hostile file for its end would take quadratic time


def seal(text: str) -> bytes:
    """The bytes of a one-line file. ``text``: a JSON object without its closing brace, ``{"format": 1`` for example."""
    body = text.encode()
    return body + f', "{KEY}": "{crc32c.value(body):08x}"}}\n'.encode()


def unseal(data: bytes, where: object, limit: int, end: re.Pattern[bytes] = ONE_LINE, todo: str = DAMAGED) -> Fields:
    """The object in a sealed file's bytes, the key ``crc32c`` among its keys. CorruptError unless the file has at most ``limit``
    bytes, ends as ``end`` says, with the right checksum, and is strict JSON. ``todo``: the advice for a damaged file."""

    def error(expected: str, found: str) -> CorruptError:
        return CorruptError(where=where, expected=expected, found=found, todo=todo)

    if len(data) > limit:
        raise error(f"at most {limit} bytes", f"{len(data)} bytes")
    tail = end.search(data, max(0, len(data) - _LONGEST_END))
    if tail is None:
        raise error("a CRC32C as the last key", "none")
    claimed, actual = int(tail[1], 16), crc32c.value(data[: tail.start()])
    if claimed != actual:
        raise error(f"CRC32C {claimed:08x} of bytes 0 to {tail.start()}", f"{actual:08x}")
    return Fields(parse_object(data, where), where)
