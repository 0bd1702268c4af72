"""The variables that can be reached from an object through attributes and containers, whether the frameworks track them or not. Imports
no framework."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from deepfreeze.state.keras_objects import CONTAINERS

_MOST = 100_000  # objects looked at: a model may hold the program's data
# Packages whose objects hold no variable of the user's, and of which TensorFlow's functions lead to every graph of the process.
_CLOSED = frozenset({"builtins", "tensorflow", "horovod", "deepfreeze", "numpy", "h5py", "threading", "types"})


def reachable(root: Any, name: str, without: Iterable[Any] = ()) -> list[tuple[str, Any]]:
    """(name, variable) of each variable that the attributes and containers of ``root`` lead to, in the order of the attributes, the nearest
    first. ``name``: of ``root`` in the program, with which the names begin: ``model.box.scale``, ``model.parts[2].kernel``. At most 100,000
    objects are looked at. ``without``: objects that are passed over; so are those in which Keras keeps compiled losses and metrics."""
    found: list[tuple[str, Any]] = []
    pending, seen = deque([(name, root)]), {id(root), *map(id, without)}
    while pending and len(seen) < _MOST:
        path, thing = pending.popleft()
        for label, part in _parts(path, thing, thing is root):
            if id(part) in seen:
                continue
            seen.add(id(part))
            if type(part).__name__ in CONTAINERS:
                continue
            if is_variable(part):
                found.append((label, part))
            else:
                pending.append((label, part))
    return found


def is_variable(thing: Any) -> bool:
    """Whether ``thing`` is a variable of TensorFlow or Keras."""
    return all(hasattr(thing, name) for name in ("assign", "shape", "dtype")) and not isinstance(thing, type)


def _parts(path: str, thing: Any, is_root: bool) -> Iterator[tuple[str, Any]]:
    """The labels and objects that ``thing`` holds."""
    if isinstance(thing, Mapping):
        yield from ((f"{path}[{key!r}]", value) for key, value in list(thing.items()))
    elif isinstance(thing, (list, tuple, set, frozenset, deque)):
        yield from ((f"{path}[{number}]", value) for number, value in enumerate(list(thing)))
    elif type(thing).__name__ == "Generator" and is_variable(getattr(thing, "state", None)):
        yield f"{path}.state", thing.state  # of tf.random
    elif is_root or type(thing).__module__.partition(".")[0] not in _CLOSED:
        attributes = getattr(thing, "__dict__", None)
        if isinstance(attributes, dict) and not isinstance(thing, type):
            yield from ((f"{path}.{key}", value) for key, value in list(attributes.items()))
