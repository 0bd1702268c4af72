"""Items and batches are arrays, or nested dicts, tuples and lists of arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class ArraySpec:
    """The shape of an array, None for dimensions that may differ between batches, and its dtype."""

    shape: tuple[int | None, ...]
    dtype: np.dtype


def mapped(function: Callable[..., Any], first: Any, *others: Any) -> Any:
    """The structure with ``function`` of its leaves in their places; the leaves of ``others``, of the same structure, are further
    arguments. None stays None. ValueError if a structure is another one."""
    if first is None:
        return None
    if isinstance(first, Mapping):
        if any(not isinstance(one, Mapping) or one.keys() != first.keys() for one in others):
            raise ValueError(f"a dict of {sorted(map(str, first))} in one place is something else in another")
        return {key: mapped(function, first[key], *(one[key] for one in others)) for key in first}
    if isinstance(first, (tuple, list)):
        if any(not isinstance(one, (tuple, list)) or len(one) != len(first) for one in others):
            raise ValueError(f"a {type(first).__name__} of {len(first)} in one place is something else in another")
        parts = [mapped(function, *each) for each in zip(first, *others, strict=True)]
        if isinstance(first, list):
            return parts
        return tuple(parts) if type(first) is tuple else type(first)(*parts)  # a named tuple takes its parts one by one
    return function(first, *others)


def leaves(structure: Any) -> Iterator[tuple[str, Any]]:
    """Each leaf with its path ("/0/image"), in the structure's order; dicts by sorted keys."""
    if isinstance(structure, Mapping):
        parts = sorted(((str(key), part) for key, part in structure.items()), key=lambda part: part[0])
    elif isinstance(structure, (tuple, list)):
        parts = [(str(number), part) for number, part in enumerate(structure)]
    else:
        if structure is not None:
            yield "", structure
        return
    for name, part in parts:
        for path, leaf in leaves(part):
            yield f"/{name}{path}", leaf


def stacked(items: list[Any]) -> Any:
    """A batch of ``items``: each leaf has one more dimension, the first. ValueError if the items do not have the same structure and
    shapes."""
    return mapped(lambda *parts: np.stack([np.asarray(part) for part in parts]), *items)
