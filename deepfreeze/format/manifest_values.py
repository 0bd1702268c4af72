"""The named values of a manifest (docs/format.md, "Named values"). Rank 0 hands them over with its part of each checkpoint, as the value
``manifest`` of its record; whoever commits the checkpoint copies their text into the manifest."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from deepfreeze.format.strict_json import MAX_INT, is_printable, shown

POSITION = "position"  # where in the program's fits the checkpoint lies: ``format/position``
LOGS = "logs"  # Keras's logs of the last epoch that had ended: {"epoch": 3, "step": 90, "values": {"loss": 0.5}}
METADATA = "metadata"  # the user's own facts, an object
INPUT = "data"  # the class of ``data=``, whose place is among the attachments: "Resumable"

MAX_BYTES = 64 << 10  # that a writer gives one manifest: listings read the manifests of all checkpoints
MAX_METADATA = 32 << 10  # bytes of the user's part
_MOST_LOGS = 100  # names in one epoch's logs, each of at most _LONGEST characters
_LONGEST = 100
_JSON = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), allow_nan=False
)  # ``json.dumps`` makes a new one in each call


def logs_of(epoch: int, step: int, logs: Mapping[str, Any]) -> dict[str, Any]:
    """Keras's ``logs`` of an epoch, whose number counts from 1 and whose last step is ``step``, as a value of this section. What is no
    number is left out; numbers that JSON does not have become text ("nan")."""
    found: dict[str, float | str] = {}
    for name, value in list(logs.items())[:_MOST_LOGS]:
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            continue
        found[str(name)[:_LONGEST]] = number if math.isfinite(number) else str(number)
    return {"epoch": epoch, "step": step, "values": found}


def measured_at(values: Mapping[str, Any], step: int) -> tuple[int, Mapping[str, Any]] | None:
    """The number of epochs done, and the logs of the epoch that ended with ``step``, among the named ``values`` of that step's manifest.
    None if the manifest was made before the epoch ended, or has logs of a form that this version does not know."""
    logs = values.get(LOGS)
    if not isinstance(logs, dict) or not isinstance(logs.get("values"), dict):
        return None
    epoch, ended = logs.get("epoch"), logs.get("step")
    if type(epoch) is not int or not 0 <= epoch <= MAX_INT or type(ended) is not int:
        return None
    return (epoch, logs["values"]) if ended == step else None


def text_of_logs(values: Mapping[str, Any]) -> str:
    """The logs among a manifest's named ``values`` for people, such as "epoch 3: loss 0.5, mae 0.25"; "" if there are none that this
    version knows."""
    logs = values.get(LOGS)
    numbers = logs.get("values") if isinstance(logs, dict) else None
    if not isinstance(logs, dict) or not isinstance(numbers, dict) or type(logs.get("epoch")) is not int:
        return ""
    known = ((name, value) for name, value in numbers.items() if is_printable(name))
    parts = [f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {shown(value)}" for name, value in known]
    return f"epoch {logs['epoch']}: {', '.join(parts)}" if parts else f"epoch {logs['epoch']}"


def facts_of(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The user's own facts among a manifest's named ``values``, for people: (name, text). Text is shown as it is where a terminal can
    show it, and else, as all other values, as JSON."""
    metadata = values.get(METADATA)
    facts = metadata.items() if isinstance(metadata, dict) else ()
    return [(shown(name), shown(value)) for name, value in facts]


def encode(values: Mapping[str, Any]) -> bytes:
    """The values as a JSON object: on one line, in ASCII, keys sorted. ValueError, TypeError or RecursionError for a value that JSON does
    not have, such as NaN; ValueError for more than ``MAX_BYTES`` bytes."""
    text = _JSON.encode(values).encode("ascii")
    if len(text) > MAX_BYTES:
        raise ValueError(f"{len(text)} bytes, more than {MAX_BYTES}")
    return text
