"""The options of an engine (``df_options``), made of Python's values by the types of the struct's fields."""

from __future__ import annotations

import ctypes as c
from typing import Any

from ._table import COptions
from ._values import byte_array, milliseconds, path_bytes

_REQUIRED = ("run_dir", "run_id", "attempt", "structure", "file_size")
_DEFAULTS = {"world": 1, "in_flight": 2, "slots": 2, "writers": 8, "chunk_bytes": 4 << 20}
_FIELDS: dict[str, Any] = {field[0]: field[1] for field in COptions._fields_}


def c_options(*, commit_timeout: float = 600.0, node: Any = (), **given: Any) -> COptions:
    """``commit_timeout``: the field ``commit_timeout_ms``, in seconds; ``node``: a sequence, whose length is the field ``node_ranks``;
    every other option has the name of its field. ``TypeError`` for an option that is missing, or that the struct does not have;
    ``ValueError`` for an id of another length."""
    unknown = sorted(given.keys() - _FIELDS.keys())
    missing = [name for name in _REQUIRED if name not in given]
    if unknown or missing:
        raise TypeError(
            f"options of an engine: {', '.join(unknown) or 'none'} unknown, {', '.join(missing) or 'none'} missing"
        )
    options = COptions(struct_size=c.sizeof(COptions), commit_timeout_ms=milliseconds(commit_timeout))
    options.node, options.node_ranks = (c.c_uint32 * len(node))(*node), len(node)
    for name, value in {**_DEFAULTS, **given}.items():
        setattr(options, name, _as_c(name, _FIELDS[name], value))
    return options


def _as_c(name: str, kind: Any, value: Any) -> Any:
    if kind is c.c_char_p:
        return None if value is None else path_bytes(value)
    return byte_array(value, kind._length_, name) if issubclass(kind, c.Array) else value
