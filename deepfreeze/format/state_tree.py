"""Writes a tree of plain values and arrays as bytes, and reads it back. Reading neither evaluates nor unpickles anything.

    u64 length of the header | header: JSON | the bytes of arrays and ``bytes`` values, one after the other, little-endian

The header is the tree as JSON. A value that JSON does not have is an object with one key: ``{"array": [dtype, shape]}``,
``{"bytes": n}``, ``{"tuple": [...]}``, ``{"dict": [[key, value], ...]}``, ``{"float": "nan" | "inf" | "-inf"}``.
"""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np

from deepfreeze.errors import CorruptError, OptionError
from deepfreeze.format.strict_json import DAMAGED, MAX_DIGITS, parse_json, short
from deepfreeze.format.tensors import DTYPES, numpy_dtype, shape_of

_LENGTH = 8  # bytes of the header's length
_MAX_HEADER = 64 << 20  # bytes; parsed JSON takes many times its length in memory
_QUOTED = 60  # characters of a user's value or key that a message quotes
_MAX_DEPTH = 50  # levels of a tree; Python's own limit of recursion is not far above
_MAX_DIMS = 64  # of an array: numpy's own limit
_TOO_LONG = 10**MAX_DIGITS  # for an integer of a tree
_KINDS = frozenset({"array", "bytes", "tuple", "dict", "float"})


def encode(tree: Any, where: str) -> bytes:
    """The bytes of a tree of None, bool, int, float, str, bytes, list, tuple, dict (with str or int keys), and arrays. An array is
    any object that numpy makes an array of numbers of, a tensor for example. ``where``: what messages call the tree.

    ``OptionError`` for a value of another type and for an integer of more than 4300 digits, naming its place in the tree; and for a header
    of more than 64 MiB."""
    payloads: list[bytes] = []
    header = json.dumps(_plain(tree, where, payloads, 0), separators=(",", ":"), allow_nan=False).encode()
    if len(header) > _MAX_HEADER:
        found = f"{len(header)} bytes of values, of at most {_MAX_HEADER}"
        todo = "let state_dict() return arrays where it has long lists"
        raise OptionError(where=where, expected="small values and arrays", found=found, todo=todo)
    return b"".join([len(header).to_bytes(_LENGTH, "little"), header, *payloads])


def decode(data: bytes, where: object) -> Any:
    """The tree that ``encode`` has made ``data`` of; its arrays are writable copies. Bytes behind the tree's end are ignored.
    ``CorruptError`` (at ``where``) for bytes that ``encode`` does not make."""
    header_size = int.from_bytes(data[:_LENGTH], "little")
    end = _LENGTH + header_size
    if len(data) < _LENGTH or end > len(data) or header_size > _MAX_HEADER:
        raise _corrupt(where, f"a header of {header_size} bytes in {len(data)} bytes")
    try:
        return _Decoder(data, end, where).value(parse_json(data[_LENGTH:end]), 0)
    except (ValueError, TypeError, RecursionError) as error:
        raise _corrupt(where, str(error)[:_QUOTED] or type(error).__name__) from None


def _plain(value: Any, where: str, payloads: list[bytes], depth: int) -> Any:
    """The value as it stands in the header; the bytes of its arrays are appended to ``payloads``."""
    if depth > _MAX_DEPTH:
        raise _unfit(where, f"more than {_MAX_DEPTH} levels")
    if type(value) is int:
        return _readable(value, where)
    if value is None or type(value) in (bool, str):
        return value
    if type(value) is float:
        return value if math.isfinite(value) else {"float": str(value)}
    if type(value) is bytes:
        payloads.append(value)
        return {"bytes": len(value)}
    if type(value) in (list, tuple):
        items = [_plain(item, f"{where}[{n}]", payloads, depth + 1) for n, item in enumerate(value)]
        return items if type(value) is list else {"tuple": items}
    if isinstance(value, dict):
        pairs = [
            [_key(k, where), _plain(v, f"{where}[{k!r:.{_QUOTED}}]", payloads, depth + 1)] for k, v in value.items()
        ]
        return {"dict": pairs}
    array = np.asarray(value)
    if array.dtype.name not in DTYPES:
        raise _unfit(where, f"a {type(value).__name__}")
    payloads.append(np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes())
    return {"array": [array.dtype.name, list(array.shape)]}


def _key(key: Any, where: str) -> Any:
    if type(key) not in (str, int):
        raise _unfit(where, f"a key that is a {type(key).__name__}")
    return _readable(key, where) if type(key) is int else key


def _readable(number: int, where: str) -> int:
    """The number, if ``decode`` takes as many digits."""
    if not -_TOO_LONG < number < _TOO_LONG:
        raise _unfit(where, f"an integer of more than {MAX_DIGITS} digits")
    return number


class _Decoder:
    """Decodes the header of a tree. It takes the bytes of arrays one after the other, in the order of the header."""

    def __init__(self, data: bytes, at: int, where: object) -> None:
        """``at``: the offset of the first array's bytes in ``data``."""
        self._data, self._at, self._where = data, at, where

    def value(self, plain: Any, depth: int) -> Any:
        """The value that ``plain``, a value of the header, stands for. ValueError, TypeError or RecursionError if it is none."""
        if depth > _MAX_DEPTH:
            raise ValueError(f"more than {_MAX_DEPTH} levels")
        if isinstance(plain, list):
            return [self.value(item, depth + 1) for item in plain]
        if not isinstance(plain, dict):
            return plain
        if len(plain) != 1 or not plain.keys() <= _KINDS:
            raise ValueError("an object without one of the known keys")
        ((kind, inner),) = plain.items()
        if kind == "tuple":
            return tuple(self.value(item, depth + 1) for item in _list(inner))
        if kind == "dict":
            return {k: self.value(v, depth + 1) for k, v in map(_pair, _list(inner))}
        if kind == "float":
            return {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}[_one_of(inner, ("nan", "inf", "-inf"))]
        if kind == "bytes":
            return self._take(inner)
        name, dimensions = _pair(inner)
        dtype = numpy_dtype(_one_of(name, DTYPES)).newbyteorder("<")
        shape = shape_of(dimensions, _MAX_DIMS)
        if shape is None:
            raise ValueError(f"a shape that is no list of at most {_MAX_DIMS} sizes")
        return np.frombuffer(self._take(math.prod(shape) * dtype.itemsize), dtype).reshape(shape).copy()

    def _take(self, nbytes: Any) -> bytes:
        if type(nbytes) is not int or not 0 <= nbytes <= len(self._data) - self._at:
            raise ValueError(f"{short(nbytes)} bytes where {len(self._data) - self._at} are left")
        self._at += nbytes
        return self._data[self._at - nbytes : self._at]


def _list(value: Any) -> list:
    if not isinstance(value, list):
        raise ValueError("a value that is not a list")
    return value


def _pair(value: Any) -> tuple:
    if len(_list(value)) != 2 or not isinstance(value[0], (str, int)):
        raise ValueError("a value that is not a pair")
    return tuple(value)


def _one_of(value: Any, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise ValueError(f"{value!r}"[:50])
    return str(value)


def _corrupt(where: object, found: str) -> CorruptError:
    return CorruptError(where=where, expected="a tree of values and arrays", found=found, todo=DAMAGED)


def _unfit(where: str, found: str) -> OptionError:
    expected = "None, bool, int, float, str, bytes, list, tuple, dict with str or int keys, arrays of numbers"
    return OptionError(where=where, expected=expected, found=found, todo="let state_dict() return plain values")
