"""Random changes of a file's content: Hypothesis strategies, each of which draws a function from the old content to the new one."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

_SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6)
_VALUES = st.one_of(
    _SCALARS, st.integers(-1, 5), st.just(2**63), st.lists(_SCALARS, max_size=2), st.just({}), st.just("0" * 32)
)


def _edited(kind: str, at: float, byte: int) -> Callable[[bytes], bytes]:
    def edit(data: bytes) -> bytes:
        place = int(at * len(data))
        behind = place if kind == "insert" else place + 1
        return data[:place] + (b"" if kind == "delete" else bytes([byte])) + data[behind:]

    return edit


# A byte is replaced, put in, or taken out.
of_bytes = st.builds(
    _edited, st.sampled_from(["replace", "insert", "delete"]), st.floats(0, 1, exclude_max=True), st.integers(0, 255)
)


def _places(value: Any, above: tuple = ()) -> list[tuple]:
    """The path (keys and indices) of each value within a JSON value."""
    below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [above, *(path for key, one in below for path in _places(one, (*above, key)))]


def _put(kind: str, at: float, new: Any, spelling: dict) -> Callable[[dict], bytes]:
    def edit(value: dict) -> bytes:
        changed = copy.deepcopy(value)
        places = _places(changed)[1:]
        path = places[int(at * len(places))]
        parent = changed
        for key in path[:-1]:
            parent = parent[key]
        if kind == "replace":
            parent[path[-1]] = new
        elif kind == "delete":
            del parent[path[-1]]
        elif kind == "add" and isinstance(parent, dict):
            parent["more"] = new
        elif kind == "add":
            parent.insert(path[-1], new)
        return json.dumps(changed, **spelling).encode("utf-8", "surrogatepass")

    return edit


_canonical = {"sort_keys": True, "separators": (",", ":")}
# A value is replaced, taken out, or put in, or nothing is but the spelling changed.
of_json = st.builds(
    _put,
    st.sampled_from(["replace", "replace", "delete", "add", "spell"]),
    st.floats(0, 1, exclude_max=True),
    _VALUES,
    st.sampled_from(
        [_canonical, _canonical, {}, {"sort_keys": True, "indent": 1}, {**_canonical, "ensure_ascii": False}]
    ),
)
