"""Strict reading of the project's JSON files: one object, known keys, exact types, standard JSON only."""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

from deepfreeze.core.errors import CorruptError

MAX_INT = 2**63 - 1
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z\Z")
_CRC = re.compile(r"[0-9a-f]{8}\Z")
DAMAGED = "the file is damaged: use another checkpoint, or restore this file from a copy"
UPGRADE = "read it with the version of DeepFreeze that wrote it, or a newer one"


def parse_object(data: bytes, where: object) -> dict[str, Any]:
    """The JSON object in ``data``. CorruptError on anything else: NaN, repeated keys, invalid UTF-8, deep nesting."""
    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        # ValueError: also what is not UTF-8, and integers of more digits than Python reads.
        text = str(error) or "nesting too deep"
        raise CorruptError(where=where, expected="a JSON object in UTF-8", found=text, todo=DAMAGED) from None
    if not isinstance(value, dict):
        raise CorruptError(where=where, expected="a JSON object", found=type(value).__name__, todo=DAMAGED)
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = [key for key, _ in pairs]
    if len(set(keys)) != len(keys):
        raise ValueError(f"a repeated key among {keys[:10]}")
    return dict(pairs)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant}, which is no JSON")


class Fields:
    """Typed access to one object's members; every failure is a CorruptError that names the member."""

    def __init__(self, value: object, where: object, what: str = "") -> None:
        self.where = where
        self._what = what
        if not isinstance(value, dict):
            raise self.error(f"{what or 'the file'} to be an object", type(value).__name__)
        self._value: dict[str, Any] = value

    def error(self, expected: str, found: str, todo: str = DAMAGED) -> CorruptError:
        """The error to raise when ``found`` is not ``expected``."""
        return CorruptError(where=self.where, expected=expected, found=found, todo=todo)

    def keys(self, *names: str, ordered: bool = False) -> None:
        """Exactly these keys, in this order if ``ordered``."""
        found = list(self._value)
        if (found if ordered else sorted(found)) != (list(names) if ordered else sorted(names)):
            raise self.error(f"{self._of('keys')} {', '.join(names)}", ", ".join(map(str, found[:20])) or "none")

    def version(self, known: int) -> None:
        """Member ``format`` must be ``known``."""
        if self.integer("format") != known:
            raise self.error(f"format {known}", f"format {self._value['format']}", UPGRADE)

    def integer(self, key: str, low: int = 0, high: int = MAX_INT) -> int:
        """An integer within [low, high]; a bool or 1.0 is none."""
        value = self._value.get(key)
        if type(value) is not int or not low <= value <= high:
            raise self.error(f"{self._of(key)} to be an integer from {low} to {high}", _short(value))
        return value

    def text(self, key: str) -> str:
        """A string that is not empty and has no control characters."""
        value = self._value.get(key)
        if not isinstance(value, str) or not value or any(ord(c) < 32 or 127 <= ord(c) < 160 for c in value):
            raise self.error(f"{self._of(key)} to be printable text", _short(value))
        return value

    def one_of(self, key: str, allowed: tuple[str, ...]) -> str:
        """One of ``allowed``."""
        value = self._value.get(key)
        if not isinstance(value, str) or value not in allowed:
            raise self.error(f"{self._of(key)} to be one of {', '.join(allowed)}", _short(value))
        return value

    def hexadecimal(self, key: str, digits: int) -> str:
        """Exactly ``digits`` lower-case hexadecimal digits."""
        value = self._value.get(key)
        if not isinstance(value, str) or not re.fullmatch(f"[0-9a-f]{{{digits}}}", value):
            raise self.error(f"{self._of(key)} to be {digits} lower-case hexadecimal digits", _short(value))
        return value

    def time(self, key: str) -> str:
        """A time in UTC like 2026-11-21T03:35:58Z."""
        value = self._value.get(key)
        if not isinstance(value, str) or not _TIME.match(value):
            raise self.error(f"{self._of(key)} to be a time like 2026-11-21T03:35:58Z", _short(value))
        return value

    def items(self, key: str) -> list[Any]:
        """A list."""
        value = self._value.get(key)
        if not isinstance(value, list):
            raise self.error(f"{self._of(key)} to be a list", _short(value))
        return value

    def child(self, key: str) -> Fields:
        """An object."""
        return Fields(self._value.get(key), self.where, self._of(key))

    def plain(self) -> dict[str, Any]:
        """The object itself."""
        return dict(self._value)

    def _of(self, key: str) -> str:
        return f"{self._what}.{key}" if self._what else key


def _short(value: object) -> str:
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
