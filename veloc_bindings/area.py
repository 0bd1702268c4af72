"""A capture area: where ops in a training's graph put what they capture. See ``df_area_*`` in the header."""

from __future__ import annotations

import ctypes as c
from collections.abc import Iterable
from typing import NamedTuple

from . import _table
from ._fault import check
from ._library import library


class AreaCapture(NamedTuple):
    """Where a capture lies. ``own``: in the area's memory, to be dropped when it is no longer read; else in the engine's."""

    base: int
    own: bool


class Area:
    """One capture area; ``number`` is what the ops carry. Its memory is its own until ``Engine.attach``."""

    def __init__(self) -> None:
        number = c.c_uint64()
        self._library = library()
        check(self._library.df_area_open(c.byref(number)))
        self.number = number.value

    def set_group(self, group: int, pieces: Iterable[tuple[int, int, int, int]]) -> None:
        """Sets a group's pieces: (tensor number in the group, first byte, bytes, place in the memory of a capture)."""
        entries = [_table.CPiece(*piece) for piece in pieces]
        check(self._library.df_area_group(self.number, group, (_table.CPiece * len(entries))(*entries), len(entries)))

    def capture(self, group: int, tensors: Iterable[tuple[int, int]]) -> None:
        """Copies one group's pieces out of tensors given as (address, bytes), as the op in a graph does."""
        data = list(tensors)
        addresses = (c.c_void_p * len(data))(*(address for address, _ in data))
        sizes = (c.c_uint64 * len(data))(*(nbytes for _, nbytes in data))
        check(self._library.df_area_capture(self.number, group, addresses, sizes, len(data)))

    def collect(self) -> AreaCapture:
        """Ends the capture of a step. ``EngineFault`` if there is none, with the reason."""
        base, own = c.c_void_p(), c.c_int32()
        check(self._library.df_area_collect(self.number, c.byref(base), c.byref(own)))
        return AreaCapture(base.value or 0, bool(own.value))

    def drop(self) -> None:
        """Frees the area's own memory."""
        check(self._library.df_area_drop(self.number))

    def close(self) -> None:
        """Forgets the area: ops that still carry its number fail. May be called twice."""
        check(self._library.df_area_close(self.number))


def register_tensorflow() -> None:
    """Registers the op DeepfreezeCapture with the TensorFlow of this process. ``EngineFault``, with the reason, where that
    can't be."""
    check(library().df_tensorflow_register())
