"""A capture area: the memory into which the ops of a training's graph copy captured tensors. See ``df_area_*`` in the header
``native/include/deepfreeze/area.h``."""

from __future__ import annotations

import ctypes as c
from collections.abc import Iterable
from typing import NamedTuple

from . import _table
from ._fault import check
from ._library import library


class AreaCapture(NamedTuple):
    """The memory in which a finished capture lies. ``base``: its address. ``own``: True if it is the area's own memory, which stays as it
    is until ``drop``; False if it is the engine's, and the next ``EmbeddedEngine.submit`` must be of regions in it."""

    base: int
    own: bool


class GroupNote(NamedTuple):
    """What is known of the last capture of a group. ``updated``: at which part of the step the group's op ran, from 0.0 at the step's
    beginning to 1.0 when the last op of the capture ran; -1.0 if that is unknown. ``apart``: whether more than 1 MiB of the tensors that
    were held had memory of their own when they were copied."""

    updated: float
    apart: bool


class StepMark(NamedTuple):
    """The note that a mark in a step takes when its op runs. ``at_us``: when that was, in microseconds by a clock that never jumps, 0 if it
    has not run; ``cpu_us``: the microseconds of CPU time that all threads of the process had taken; ``external_bytes``, ``local_bytes``:
    the bytes that the attached engine had written to the external store and to the local tier, ``external_us``, ``local_us``: the
    microseconds in which it had been writing checkpoints there; all 0 without an engine."""

    at_us: int
    cpu_us: int
    external_bytes: int
    local_bytes: int
    external_us: int
    local_us: int


class Area:
    """One capture area. ``number``: the area's number, an attribute of the ops that capture into it. Captures lie in the area's own memory
    until ``EmbeddedEngine.attach`` gives it the engine's.

    For each captured step ``capture`` is called once for every group, from any thread (TensorFlow's threads, through the op), then
    ``collect`` once. The other methods are called between two captures, or between two executions of the graph."""

    def __init__(self) -> None:
        number = c.c_uint64()
        self._library = library()
        check(self._library.df_area_open(c.byref(number)))
        self.number = number.value

    def set_group(self, group: int, pieces: Iterable[tuple[int, int, int, int]]) -> None:
        """Sets the pieces of group number ``group``, in place of those it had. Each piece is (number of the tensor within the group, first
        byte within the flattened tensor, bytes, place). The place is the offset in bytes within the memory of a capture."""
        entries = [_table.CPiece(*piece) for piece in pieces]
        check(self._library.df_area_group(self.number, group, (_table.CPiece * len(entries))(*entries), len(entries)))

    def capture(self, group: int, tensors: Iterable[tuple[int, int]]) -> None:
        """Copies the pieces of one group, as the op in a graph does. ``tensors``: (address, bytes) of the group's tensors, in the order of
        their numbers; their memory must stay unchanged during the call. One call per group at a time. ``EngineFault`` if a piece
        lies outside of its tensor, or of the memory of a capture."""
        data = list(tensors)
        addresses = (c.c_void_p * len(data))(*(address for address, _ in data))
        sizes = (c.c_uint64 * len(data))(*(nbytes for _, nbytes in data))
        check(self._library.df_area_capture(self.number, group, addresses, sizes, len(data)))

    def late(self, group: int, late: bool) -> None:
        """Sets whether a group is captured late, from the next capture on: the op of its own step holds the group's tensors, and the op
        DeepfreezeCaptureHeld copies them in the next step."""
        check(self._library.df_area_late(self.number, group, int(late)))

    def held(self) -> int:
        """The number of groups whose tensors are held."""
        groups = c.c_uint64()
        check(self._library.df_area_held(self.number, c.byref(groups)))
        return groups.value

    def note(self, group: int) -> GroupNote:
        """What is known of the last capture of a group."""
        updated, apart = c.c_double(), c.c_int32()
        check(self._library.df_area_note(self.number, group, c.byref(updated), c.byref(apart)))
        return GroupNote(updated.value, bool(apart.value))

    def marks(self, count: int) -> None:
        """Lets marks number 0 to ``count`` - 1 note from now on when the op DeepfreezeMark runs. ``EngineFault`` for more than 4096."""
        check(self._library.df_area_marks(self.number, count))

    def mark(self, number: int) -> None:
        """Lets a mark note anew, as the op does. Does nothing without such a mark."""
        check(self._library.df_area_mark(self.number, number))

    def marked(self, count: int) -> list[StepMark]:
        """The notes of the area's ``count`` marks since the last call. ``EngineFault`` if there is another number of marks."""
        marks = (_table.CMark * count)()
        check(self._library.df_area_marked(self.number, marks, count))
        return [StepMark(*(getattr(mark, name) for name in StepMark._fields)) for mark in marks]

    def discard(self) -> None:
        """Forgets a capture that will not be collected, and releases the tensors that are held."""
        check(self._library.df_area_discard(self.number))

    def collect(self) -> AreaCapture:
        """Ends the capture of a step, for which it copies what is still held, and returns where it lies. ``EngineFault`` with the
        reason if nothing was captured: ``TIMEOUT`` if there was no memory for it."""
        base, own = c.c_void_p(), c.c_int32()
        check(self._library.df_area_collect(self.number, c.byref(base), c.byref(own)))
        return AreaCapture(base.value or 0, bool(own.value))

    def drop(self) -> None:
        """Frees the area's own memory. What the engine still reads of it stays until the engine has read it."""
        check(self._library.df_area_drop(self.number))

    def close(self) -> None:
        """Ends the area: ops that still have its number fail from now on. May be called twice."""
        check(self._library.df_area_close(self.number))


def register_tensorflow() -> None:
    """Registers the op DeepfreezeCapture, and the three ops beside it, with the TensorFlow that this process has loaded. ``EngineFault``
    with the reason if that is not possible."""
    check(library().df_tensorflow_register())
