"""Strict reading of the project's JSON files: each file is one object in standard JSON, with exactly the known keys, and each value has
exactly the known type."""

from __future__ import annotations

import json
import math
import re
import sys
from datetime import datetime
from typing import Any, NoReturn

from deepfreeze.errors import CorruptError, NewerError

MAX_INT = 2**63 - 1
# The most digits of an integer: CPython's own limit, which CPython before 3.10.7 lacks and any program may lift. Reading a longer one takes
# quadratic time.
MAX_DIGITS = 4300
_MAX_FLOAT = sys.float_info.max
_TIME = re.compile(r"[1-9][0-9]{3}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z\Z")
_CRC = re.compile(r"[0-9a-f]{8}\Z")
# Control characters, characters that break a line or change the direction of text on a terminal, and lone surrogates, which have no
# UTF-8. No name needs them.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
DAMAGED = "the file is damaged: use another checkpoint, or restore this file from a copy"
UPGRADE = "read it with the version of DeepFreeze that wrote it, or a newer one"


def is_printable(text: str) -> bool:
    """Whether a name is not empty, and can be shown on a terminal, written to a log and encoded as UTF-8."""
    return bool(text) and not _UNPRINTABLE.search(text)


def parse_json(data: str | bytes, **hooks: Any) -> Any:
    """The value in a JSON text of a file that anybody may have written, as plain Python values. ``hooks``: those of ``json.loads``.
    ValueError for anything else, also for an integer of more than ``MAX_DIGITS`` digits; RecursionError for deep nesting."""
    return json.loads(data, parse_int=_integer, **hooks)


def _integer(digits: str) -> int:
    number = len(digits.removeprefix("-"))
    if number > MAX_DIGITS:
        raise ValueError(f"an integer of {number} digits")
    return int(digits)


def parse_object(data: bytes, where: object, todo: str = DAMAGED) -> dict[str, Any]:
    """The JSON object in ``data``. CorruptError on anything else: NaN, repeated keys, invalid UTF-8, deep nesting. ``todo``: the advice in
    the error."""
    try:
        value = parse_json(data.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        # ValueError is also raised for bytes that are not UTF-8.
        text = str(error) or "nesting too deep"
        raise CorruptError(where=where, expected="a JSON object in UTF-8", found=text, todo=todo) from None
    if not isinstance(value, dict):
        raise CorruptError(where=where, expected="a JSON object", found=type(value).__name__, todo=todo)
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"a repeated key among {', '.join(map(short, keys[:10]))}")
    return found


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant}, which standard JSON does not have")


class Fields:
    """Typed access to the members of one JSON object. A method raises a CorruptError that names the member, if the member is missing
    or has another type than the method's."""

    def __init__(self, value: object, where: object, name: str = "", todo: str = DAMAGED) -> None:
        """``value``: the object; ``where``: the file; ``name``: what messages call the object, such as ``records[3]``, "" if it is the
        whole file; ``todo``: the advice in errors. CorruptError if ``value`` is not an object."""
        self.where = where
        self._name, self._todo = name, todo
        if not isinstance(value, dict):
            raise self.error(f"{name or 'the file'} to be an object", type(value).__name__)
        self._value: dict[str, Any] = value

    def error(self, expected: str, found: str) -> CorruptError:
        """The error to raise when ``found`` is not ``expected``."""
        return CorruptError(where=self.where, expected=expected, found=found, todo=self._todo)

    def keys(self, *names: str, ordered: bool = False) -> None:
        """CorruptError unless the object has exactly these keys, in this order if ``ordered``."""
        found = list(self._value)
        if (found if ordered else sorted(found)) != (list(names) if ordered else sorted(names)):
            raise self.error(f"{self._of('keys')} {', '.join(names)}", ", ".join(map(short, found[:20])) or "none")

    def version(self, *known: int) -> int:
        """The member ``format``. NewerError unless it is one of ``known``, the versions that this code reads."""
        found = self.integer("format")
        if found not in known:
            expected = f"format {' or '.join(map(str, known))}"
            raise NewerError(where=self.where, expected=expected, found=f"format {found}", todo=UPGRADE)
        return found

    def integer(self, key: str, low: int = 0, high: int = MAX_INT) -> int:
        """The member as an integer within [low, high]; true and 1.0 are not integers."""
        value = self._value.get(key)
        if type(value) is not int or not low <= value <= high:
            raise self.error(f"{self._of(key)} to be an integer from {low} to {high}", short(value))
        return value

    def number(self, key: str, low: float = -math.inf, high: float = math.inf) -> float:
        """The member as a finite number within [low, high]; true is no number."""
        value: Any = self._value.get(key)
        # 1e999 is read as an infinity, and an integer may be too large for a float.
        good = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not good or not max(low, -_MAX_FLOAT) <= value <= min(high, _MAX_FLOAT):
            bounds = "" if -math.inf in (low, -high) else f" from {low:g} to {high:g}"
            raise self.error(f"{self._of(key)} to be a finite number{bounds}", short(value))
        return float(value)

    def text(self, key: str) -> str:
        """The member as a string that ``is_printable``."""
        value = self._value.get(key)
        if not isinstance(value, str) or not is_printable(value):
            raise self.error(f"{self._of(key)} to be printable text", short(value))
        return value

    def one_of(self, key: str, allowed: tuple[str, ...]) -> str:
        """The member as one of the ``allowed`` strings."""
        value = self._value.get(key)
        if not isinstance(value, str) or value not in allowed:
            raise self.error(f"{self._of(key)} to be one of {', '.join(allowed)}", short(value))
        return value

    def hexadecimal(self, key: str, digits: int) -> str:
        """The member as a string of exactly ``digits`` lower-case hexadecimal digits."""
        value = self._value.get(key)
        if not isinstance(value, str) or not re.fullmatch(f"[0-9a-f]{{{digits}}}", value):
            raise self.error(f"{self._of(key)} to be {digits} lower-case hexadecimal digits", short(value))
        return value

    def time(self, key: str) -> str:
        """The member as a time in UTC, a string like 2026-11-21T03:35:58Z."""
        value = self._value.get(key)
        if not isinstance(value, str) or not _is_time(value):
            raise self.error(f"{self._of(key)} to be a time like 2026-11-21T03:35:58Z", short(value))
        return value

    def items(self, key: str) -> list[Any]:
        """The member as a list."""
        value = self._value.get(key)
        if not isinstance(value, list):
            raise self.error(f"{self._of(key)} to be a list", short(value))
        return value

    def child(self, key: str) -> Fields:
        """The member as an object."""
        return Fields(self._value.get(key), self.where, self._of(key), self._todo)

    def children(self, key: str) -> list[Fields]:
        """The member as a list of objects."""
        items = enumerate(self.items(key))
        return [Fields(one, self.where, f"{self._of(key)}[{number}]", self._todo) for number, one in items]

    def plain(self) -> dict[str, Any]:
        """The object as a dict."""
        return dict(self._value)

    def _of(self, key: str) -> str:
        return f"{self._name}.{key}" if self._name else key


def _is_time(text: str) -> bool:
    if not _TIME.match(text):
        return False
    try:
        datetime.fromisoformat(text[:-1])  # no 30th of February
    except ValueError:
        return False
    return True


def shown(value: object) -> str:
    """A value of a file as text for a terminal: text that ``is_printable`` as it is, all else as JSON."""
    if isinstance(value, str) and is_printable(value):
        return value
    try:
        return json.dumps(value)
    except RecursionError:
        return short(value)


def short(value: object) -> str:
    """A value of a file as text for a message, at most 80 characters."""
    # Lists and objects only by their length: the repr of a deeply nested value would fail.
    if isinstance(value, (list, dict)):
        return f"{'a list' if isinstance(value, list) else 'an object'} of {len(value)}"
    text = "nothing" if value is None else repr(value[:80]) if isinstance(value, str) else repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
