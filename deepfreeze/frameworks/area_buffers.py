"""The places of captured pieces in the engine's memory. Imports no framework.

A framework copies this rank's bytes out of its own buffers into memory that the engine uses again and again. So a byte is copied once, and
nothing is allocated. On a memory-backed local tier that memory is the slot itself.

The engine is opened after the first step, when the layout of the model file is known. Until then captures lie in the area's own memory.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Sequence

import numpy as np

import veloc_bindings
from deepfreeze.engine.faults import EngineFault
from deepfreeze.frameworks.state_capture import CapturedState, Piece

# Bytes of a cache line. Each group begins one, because several threads copy groups at the same time.
_CACHE_LINE = 64
# Bytes of a page. Larger pieces begin one: direct writes are made from there without another copy.
_PAGE = 4096


class AreaBuffers:
    """A capture area (``veloc_bindings.Area``), and groups of pieces with their places in it. A framework copies each group by
    ``copy``, between two executions, or by an op of its own. Implements ``state_capture.EngineMemory``."""

    def __init__(self) -> None:
        """``EngineFault`` if there can't be another area."""
        self.area = veloc_bindings.Area()
        self.groups: list[Sequence[Piece]] = []
        # Each piece's offset in bytes, within the area's own memory and within the engine's memory of a capture.
        self._area_places: list[int] = []
        self._area_nbytes = 0
        self._engine_places: np.ndarray | None = None
        # The user may drop the callback, and with it this object, without close().
        self._finalizer = weakref.finalize(self, self.area.close)

    @property
    def engine_memory(self) -> AreaBuffers:
        """This object."""
        return self

    def add(self, pieces: Sequence[Piece]) -> int:
        """Adds a group of pieces and returns its number, counted from 0. The pieces get places in the area's own memory. All groups are
        added before the first ``collect``; none is ever removed."""
        first = len(self._area_places)
        at = self._area_nbytes
        for piece in pieces:
            if piece.nbytes >= _PAGE:
                at = -(-at // _PAGE) * _PAGE
            self._area_places.append(at)
            at += piece.nbytes
        self._area_nbytes = -(-at // _CACHE_LINE) * _CACHE_LINE
        self.groups.append(pieces)
        self._set_group(len(self.groups) - 1, self._area_places[first:])
        return len(self.groups) - 1

    def follow(self, group: int, pieces: Sequence[Piece]) -> None:
        """Has the group's pieces come from other variables: ``pieces`` are as long as those that were added, in the same order."""
        self.groups[group] = pieces

    def place(self, places: np.ndarray) -> None:
        """See ``state_capture.EngineMemory``."""
        if self._engine_places is not None and np.array_equal(places, self._engine_places):
            return  # the next training on the same captures
        first = 0
        for group, pieces in enumerate(self.groups):
            self._set_group(group, places[first : first + len(pieces)].tolist())
            first += len(pieces)
        self._engine_places = places.astype(np.uint64)  # last: after a fault the next call places all groups again

    def copy(self, group: int, values: Sequence[np.ndarray]) -> None:
        """Copies a group. ``values``: of its variables, in the order of ``variables_of``, in host memory, of any shape. ``EngineFault`` if
        a piece lies outside of its value, or of the memory of a capture."""
        whole = [np.ascontiguousarray(value) for value in values]
        self.area.capture(group, [(value.ctypes.data, value.nbytes) for value in whole])

    def collect(self) -> CapturedState:
        """Ends a capture and returns it. Called once for each captured step, when each group was copied: one that was not is not noticed.
        ``EngineFault`` if there was no memory for the capture, or if no group was copied; a rank without pieces has an empty group."""
        base, own = self.area.collect()
        if own or self._engine_places is None:
            places = np.array(self._area_places, np.uint64)
            return CapturedState(np.uint64(base) + places, _AreaMemory(self.area) if own else None)
        return CapturedState(np.uint64(base) + self._engine_places, None)

    def discard(self) -> None:
        """Forgets a capture that will not be collected, and frees its memory. Does nothing if there is none."""
        with contextlib.suppress(EngineFault):  # raised if the area is closed
            self.area.discard()
        _free(self.area)

    def close(self) -> None:
        """Closes the area. Safe to call twice."""
        self._finalizer()

    def _set_group(self, group: int, places: Sequence[int]) -> None:
        pieces = self.groups[group]
        number = {id(variable): i for i, variable in enumerate(variables_of(pieces))}
        rows = [
            (number[id(piece.variable)], piece.start, piece.nbytes, place)
            for piece, place in zip(pieces, places, strict=True)
        ]
        self.area.set_group(group, rows)


class _AreaMemory:
    """The owner of a capture in the area's own memory: the memory is freed when nothing references this object any more."""

    def __init__(self, area: veloc_bindings.Area) -> None:
        weakref.finalize(self, _free, area)


def _free(area: veloc_bindings.Area) -> None:
    with contextlib.suppress(
        EngineFault
    ):  # raised if the area is closed, at the process's exit for example: it has freed the memory
        area.drop()


def variables_of(pieces: Sequence[Piece]) -> list:
    """The variables of the pieces, each once. A variable's index in the list is its number within the group."""
    return list({id(piece.variable): piece.variable for piece in pieces}.values())
