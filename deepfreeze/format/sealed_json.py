"""JSON files whose last key is the CRC32C of every byte before it: ``run.json``, ``manifest.json``, ``configs/ATTEMPT.json``
(docs/format.md). The last key itself has exactly one valid spelling, so that a change of any byte of the file is noticed."""

from __future__ import annotations

import re

from deepfreeze.errors import CorruptError
from deepfreeze.format import crc32c
from deepfreeze.format.strict_json import DAMAGED, Fields, parse_object

KEY = "crc32c"
# The end of a file that has all of its JSON on one line, and of a file that has one key on each line.
ONE_LINE = re.compile(rb', "crc32c": "([0-9a-f]{8})"\}\n\Z')
LINES = re.compile(rb'  "crc32c": "([0-9a-f]{8})"\n\}\n\Z')
_LONGEST_END = (
    64  # bytes searched for the end: in a whole file made by an attacker the search would take quadratic time
)


def seal(text: str) -> bytes:
    """The bytes of a one-line file. ``text``: a JSON object without its closing brace, ``{"format": 1`` for example."""
    body = text.encode()
    return body + f', "{KEY}": "{crc32c.value(body):08x}"}}\n'.encode()


def unseal(data: bytes, where: object, limit: int, end: re.Pattern[bytes] = ONE_LINE, todo: str = DAMAGED) -> Fields:
    """The JSON object in a sealed file's bytes, with its key ``crc32c``. ``limit``: the most bytes that the file may have; ``end``:
    ``ONE_LINE`` or ``LINES``, the form of the file's end; ``todo``: the advice in the error. CorruptError (at ``where``) for a file
    that is too long, has another end or another checksum, or is not strict JSON."""

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
    return Fields(parse_object(data, where, todo), where, todo=todo)
