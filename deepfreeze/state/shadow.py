"""An attribute of one instance in place of another, for a while: how this library hooks into a user's objects."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

_NONE = object()


@contextlib.contextmanager
def shadowed(owner: Any, name: str, value: Any) -> Iterator[None]:
    """``owner.name`` is ``value`` until the end; then what was there before: an attribute of the instance's own, or its class's.

    An attribute that somebody has put over ``value`` meanwhile stays: it may go on calling ``value``.
    """
    before = vars(owner).get(name, _NONE)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if vars(owner).get(name) is value:
            if before is _NONE:
                delattr(owner, name)
            else:
                setattr(owner, name, before)
