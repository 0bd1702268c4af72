"""Captures put straight into the engine's memory, by an op that the engine registers with TensorFlow. Imports TensorFlow.

The op reads TensorFlow's own buffers and copies this rank's bytes of them to memory that is used again and again: one copy,
no allocation, no fresh page. On a memory-backed local tier the op writes the slot itself.

Until there is an engine (the model file's layout is known after the first step only), captures go to memory of the area's own.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

import veloc_bindings
from deepfreeze.frameworks.framework import Captured, Piece
from veloc_bindings import EngineFault

# Whole cache lines, so that no two groups share one.
_ALIGN = 64


def reason_against() -> str | None:
    """Why this process can't use the op; None if it can."""
    try:
        veloc_bindings.register_tensorflow()
    except EngineFault as fault:
        return str(fault)
    return None


class EngineBuffers:
    """A capture area and its groups. Implements ``buffers.Buffers`` and ``framework.EngineMemory``."""

    def __init__(self) -> None:
        self.area = veloc_bindings.Area()
        self._groups: list[Sequence[Piece]] = []
        self._own: list[int] = []  # each piece's byte offset in the area's own memory
        self._own_size = 0
        self._placed: np.ndarray | None = None  # each piece's byte offset in the engine's memory
        # A callback may be dropped without close().
        self._closer = weakref.finalize(self, self.area.close)

    @property
    def engine_memory(self) -> EngineBuffers:
        """Itself."""
        return self

    def add(self, pieces: Sequence[Piece]) -> int:
        """A new group; returns its number."""
        first = len(self._own)
        at = self._own_size
        for piece in pieces:
            self._own.append(at)
            at += piece.nbytes
        self._own_size = -(-at // _ALIGN) * _ALIGN
        self._groups.append(pieces)
        self._set(len(self._groups) - 1, self._own[first:])
        return len(self._groups) - 1

    def write(self, group: int) -> None:
        """Adds the op to the graph."""
        tensors = [variable.read_value() for variable in _variables(self._groups[group])]
        value = tf.compat.v1.AttrValue
        attributes = {
            "T": value(list=value.ListValue(type=[tensor.dtype.as_datatype_enum for tensor in tensors])),
            "area": value(i=self.area.number),
            "group": value(i=group),
        }
        graph = tf.compat.v1.get_default_graph()
        graph.create_op("DeepfreezeCapture", tensors, [], attrs=attributes, name="deepfreeze_capture")

    def place(self, places: np.ndarray) -> None:
        """See ``framework.EngineMemory``."""
        self._placed = places
        first = 0
        for group, pieces in enumerate(self._groups):
            self._set(group, places[first : first + len(pieces)].tolist())
            first += len(pieces)

    def collect(self) -> Captured:
        """The last capture. ``EngineFault`` if there was no memory for it."""
        base, own = self.area.collect()
        places = self._own if own or self._placed is None else self._placed
        return Captured(np.uint64(base) + np.asarray(places, np.uint64), _Own(self.area) if own else None)

    def discard(self) -> None:
        """See ``buffers.Buffers``."""
        with contextlib.suppress(EngineFault):  # nothing was captured
            self.area.collect()
        self.area.drop()

    def close(self) -> None:
        """Forgets the area."""
        self._closer()

    def _set(self, group: int, places: Sequence[int]) -> None:
        pieces = self._groups[group]
        number = {id(variable): i for i, variable in enumerate(_variables(pieces))}
        rows = [
            (number[id(piece.variable)], piece.start, piece.nbytes, place)
            for piece, place in zip(pieces, places, strict=True)
        ]
        self.area.set_group(group, rows)


class _Own:
    """Keeps the area's own memory while it is referenced."""

    def __init__(self, area: veloc_bindings.Area) -> None:
        weakref.finalize(self, _drop, area)


def _drop(area: veloc_bindings.Area) -> None:
    with contextlib.suppress(EngineFault):  # closed already, and the memory with it
        area.drop()


def _variables(pieces: Sequence[Piece]) -> list:
    return list({id(piece.variable): piece.variable for piece in pieces}.values())
