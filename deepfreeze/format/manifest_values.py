"""The named values of a manifest (docs/format.md, "Named values"). Rank 0 hands them over with its part of each checkpoint, as the value
``manifest`` of its record; whoever commits the checkpoint copies their text into the manifest."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

POSITION = "position"  # where in the program's fits the checkpoint lies: ``format/position``

MAX_BYTES = 64 << 10  # that a writer gives one manifest: listings read the manifests of all checkpoints


def encode(values: Mapping[str, Any]) -> bytes:
    """The values as a JSON object: on one line, in ASCII, keys sorted. ValueError, TypeError or RecursionError for a value that JSON does
    not have, such as NaN; ValueError for more than ``MAX_BYTES`` bytes."""
    text = json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")
    if len(text) > MAX_BYTES:
        raise ValueError(f"{len(text)} bytes, more than {MAX_BYTES}")
    return text
