"""A tree of plain values and arrays as bytes, and back. Nothing in the bytes is ever evaluated or unpickled.

    u64 length of the header | header: JSON | arrays' bytes, one after the other, little-endian

In the header everything is itself, but for what JSON lacks, each as an object with one key: ``{"array": [dtype, shape]}``,
``{"bytes": n}``, ``{"tuple": [...]}``, ``{"dict": [[key, value], ...]}``, ``{"float": "nan" | "inf" | "-inf"}``.
"""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np

from deepfreeze.errors import CorruptError, OptionError
from deepfreeze.format.strict_json import DAMAGED
from deepfreeze.format.tensors import DTYPES, numpy_dtype

_LENGTH = 8
_HEADER = 64 << 20  # bytes at most, as parsed JSON takes many times its length
_QUOTED = 60  # characters of somebody's value or key in a message
_DEPTH = 50  # of a tree; Python's own limit is not far above
_KINDS = frozenset({"array", "bytes", "tuple", "dict", "float"})


def encode(tree: Any, where: str) -> bytes:
    """The bytes of a tree of None, bool, int, float, str, bytes, list, tuple, dict, and arrays (whatever numpy makes an array
    of numbers of, tensors too). ``OptionError`` that names the place of anything else."""
    parts: list[bytes] = []
    header = json.dumps(_plain(tree, where, parts, 0), separators=(",", ":"), allow_nan=False).encode()
    if len(header) > _HEADER:
        found = f"{len(header)} bytes of values, of at most {_HEADER}"
        todo = "let state_dict() return arrays where it has long lists"
        raise OptionError(where=where, expected="small values and arrays", found=found, todo=todo)
    return b"".join([len(header).to_bytes(_LENGTH, "little"), header, *parts])


def decode(data: bytes, where: object) -> Any:
    """The tree. Bytes behind its end are not looked at. ``CorruptError`` (at ``where``) if it is none."""
    header_size = int.from_bytes(data[:_LENGTH], "little")
    end = _LENGTH + header_size
    if len(data) < _LENGTH or end > len(data) or header_size > _HEADER:
        raise _corrupt(where, f"a header of {header_size} bytes in {len(data)} bytes")
    try:
        return _Decoder(data, end, where).value(json.loads(data[_LENGTH:end]), 0)
    except (ValueError, TypeError, RecursionError) as error:
        raise _corrupt(where, str(error)[:_QUOTED] or type(error).__name__) from None


def _plain(value: Any, where: str, parts: list[bytes], depth: int) -> Any:
    if depth > _DEPTH:
        raise _unfit(where, f"more than {_DEPTH} levels")
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float:
        return value if math.isfinite(value) else {"float": str(value)}
    if type(value) is bytes:
        parts.append(value)
        return {"bytes": len(value)}
    if type(value) in (list, tuple):
        found = [_plain(item, f"{where}[{n}]", parts, depth + 1) for n, item in enumerate(value)]
        return found if type(value) is list else {"tuple": found}
    if isinstance(value, dict):
        items = [[_key(k, where), _plain(v, f"{where}[{k!r:.{_QUOTED}}]", parts, depth + 1)] for k, v in value.items()]
        return {"dict": items}
    array = np.asarray(value)
    if array.dtype.name not in DTYPES:
        raise _unfit(where, f"a {type(value).__name__}")
    parts.append(np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes())
    return {"array": [array.dtype.name, list(array.shape)]}


def _key(key: Any, where: str) -> Any:
    if type(key) not in (str, int):
        raise _unfit(where, f"a key that is a {type(key).__name__}")
    return key


class _Decoder:
    """Takes the arrays' bytes one after the other, in the header's order."""

    def __init__(self, data: bytes, at: int, where: object) -> None:
        self._data, self._at, self._where = data, at, where

    def value(self, plain: Any, depth: int) -> Any:
        """What ``plain`` stands for."""
        if depth > _DEPTH:
            raise ValueError(f"more than {_DEPTH} levels")
        if isinstance(plain, list):
            return [self.value(item, depth + 1) for item in plain]
        if not isinstance(plain, dict):
            return plain
        if len(plain) != 1 or not plain.keys() <= _KINDS:
            raise ValueError("an object that stands for nothing")
        ((kind, inner),) = plain.items()
        if kind == "tuple":
            return tuple(self.value(item, depth + 1) for item in _list(inner))
        if kind == "dict":
            return {k: self.value(v, depth + 1) for k, v in map(_pair, _list(inner))}
        if kind == "float":
            return {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}[_one_of(inner, ("nan", "inf", "-inf"))]
        if kind == "bytes":
            return self._take(inner)
        name, shape = _pair(inner)
        dtype = numpy_dtype(_one_of(name, DTYPES)).newbyteorder("<")
        if any(type(n) is not int or n < 0 for n in _list(shape)):
            raise ValueError("a shape that is none")
        return np.frombuffer(self._take(math.prod(shape) * dtype.itemsize), dtype).reshape(shape).copy()

    def _take(self, nbytes: Any) -> bytes:
        if type(nbytes) is not int or not 0 <= nbytes <= len(self._data) - self._at:
            raise ValueError(f"{nbytes} bytes where {len(self._data) - self._at} are left")
        self._at += nbytes
        return self._data[self._at - nbytes : self._at]


def _list(value: Any) -> list:
    if not isinstance(value, list):
        raise ValueError("something else than a list")
    return value


def _pair(value: Any) -> tuple:
    if len(_list(value)) != 2 or not isinstance(value[0], (str, int)):
        raise ValueError("something else than a pair")
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
