"""Replaces an attribute of one object for a while. This is how DeepFreeze hooks into the user's objects; classes are never changed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

_NONE = object()


@contextlib.contextmanager
def shadowed(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Within the ``with`` block ``owner.name`` is ``value``. Afterwards it is again the attribute that was there before: of the object
    itself, or of its class.

    If other code has replaced ``value`` meanwhile, its replacement stays. The replacement may go on calling ``value``.
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
