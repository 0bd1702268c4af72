"""Reads the lines of a file of events (docs/format.md, "Events") piece by piece, because anybody may have written the file, of any
length."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, TypeGuard

from deepfreeze.format.strict_json import MAX_INT, parse_json
from deepfreeze.store.ranges import Ranges

MAX_LINE = 1 << 20  # bytes, without the newline; an event has some hundred
_PIECE = 1 << 18  # bytes read at a time
_MOST_SECONDS = 1e12
_MOST_LEVELS = 50


class EventLines:
    """The events of one file that grows, as far as they were not given out yet. Beside an event, ``new`` holds at most a line and a piece
    of the file in memory.

    ``skipped``: how many lines were too long to be events. A line counts as soon as it is too long, whether or not it has an end yet."""

    def __init__(self, longest: int = MAX_LINE, piece: int = _PIECE) -> None:
        """``longest``: the most bytes of a line, without its newline; ``piece``: bytes read at a time."""
        self.skipped = 0
        self._longest, self._piece = longest, piece
        self._at = 0  # the beginning of the first line that was not given out, or of what is not read of a line that is skipped
        self._skips = False

    def new(self, file: Ranges) -> Iterator[dict[str, Any]]:
        """The events that were written since the last call, in the file's order. A line without its end is left for the next call; a line
        that is no event is left out. Errors are those of ``Ranges.get``."""
        at, rest = self._at, b""  # ``rest``: the bytes from ``self._at`` to ``at``, a line that has begun
        while piece := file.get(at, self._piece):
            at += len(piece)
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                self._at += len(line) + 1
                if self._skips:
                    self._skips = False
                elif len(line) > self._longest:
                    self.skipped += 1
                elif (event := parse(line)) is not None:
                    yield event
            if self._skips or len(rest) > self._longest:
                self.skipped += not self._skips
                self._skips = True
                at = self._at = file.behind_hole(at)
                rest = b""


def parse(line: bytes) -> dict[str, Any] | None:
    """The event in a line of the file. None for a line that is no event: a JSON object with the members ``v`` and ``t`` (integers, ``t``
    of at most 63 bits), ``m`` (a number) and ``kind`` (text), of at most 50 levels of lists and objects."""
    try:
        event = parse_json(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(event, dict) or not isinstance(event.get("kind"), str) or not _is_flat(event, _MOST_LEVELS):
        return None
    version, time, seconds = event.get("v"), event.get("t"), event.get("m")
    if type(version) is not int or type(time) is not int or abs(time) > MAX_INT:
        return None
    return event if is_number(seconds) and abs(seconds) < _MOST_SECONDS else None


def _is_flat(value: Any, levels: int) -> bool:
    """True if ``value`` has at most ``levels`` levels of lists and objects. Functions that show a value call themselves for each level."""
    if not isinstance(value, (list, dict)):
        return True
    inner = value.values() if isinstance(value, dict) else value
    return levels > 0 and all(_is_flat(one, levels - 1) for one in inner)


def is_number(value: Any) -> TypeGuard[float]:
    """True if ``value`` is a number that a float can hold: no text, no true, no NaN, no integer of hundreds of digits."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
