"""Captures put straight into the engine's memory, by an op that the engine registers with TensorFlow. Imports TensorFlow.

The op reads TensorFlow's own buffers and copies this rank's bytes of them to memory that is used again and again: one copy,
no allocation, no fresh page, and on a memory-backed local tier it is the slot itself that is written.

Until the engine is there (the layout is known after the first step only), the memory is the area's own, laid out group by
group as ``GraphBuffers`` does it.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

import veloc_bindings
from deepfreeze.freeze.pieces import Captured, Piece
from veloc_bindings import EngineFault

# Whole cache lines, so that no two pieces share one.
_ALIGN = 64


def reason_against() -> str | None:
    """Why this process can't use the op; None if it can."""
    try:
        veloc_bindings.register_tensorflow()
    except EngineFault as fault:
        return str(fault)
    return None


class EngineBuffers:
    """A capture area and its groups."""

    def __init__(self) -> None:
        self._area = veloc_bindings.Area()
        self._groups: list[list[Piece]] = []
        self._bases: list[int] = []
        self._size = 0
        # A callback may be dropped without close().
        self._closer = weakref.finalize(self, self._area.close)

    @property
    def area(self) -> veloc_bindings.Area:
        """What an engine attaches to."""
        return self._area

    @property
    def groups(self) -> list[list[Piece]]:
        """The pieces of all groups so far."""
        return self._groups

    def add(self, pieces: Sequence[Piece]) -> int:
        """A new group; returns its number."""
        self._groups.append(list(pieces))
        self._bases.append(self._size)
        self._size += -(-sum(piece.nbytes for piece in pieces) // _ALIGN) * _ALIGN
        group = len(self._groups) - 1
        self._set(group, {})
        return group

    def plan(self, places: Mapping[tuple[int, int], int]) -> None:
        """Gives every piece, named by its group and its place in the group, a place in the engine's memory."""
        for group in range(len(self._groups)):
            self._set(group, places)

    def write(self, group: int, pieces: Sequence[Piece]) -> None:
        """Adds the op to the graph."""
        tensors = [variable.read_value() for variable in _variables(pieces)]
        value = tf.compat.v1.AttrValue
        attributes = {
            "T": value(list=value.ListValue(type=[tensor.dtype.as_datatype_enum for tensor in tensors])),
            "area": value(i=self._area.number),
            "group": value(i=group),
        }
        graph = tf.compat.v1.get_default_graph()
        graph.create_op("DeepfreezeCapture", tensors, [], attrs=attributes, name="deepfreeze_capture")

    def collect(self) -> Captured:
        """What was captured last. ``EngineFault`` if there was no memory for it."""
        base, own = self._area.collect()
        if not own:
            return Captured(np.array([base], np.uint64), None, planned=True)
        bases = np.array(self._bases, np.uint64) + np.uint64(base)
        return Captured(bases, _Own(self._area), planned=False)

    def discard(self) -> None:
        """Forgets what is in the area's own memory, if there is anything."""
        with contextlib.suppress(EngineFault):  # nothing was captured
            self._area.collect()
            self._area.drop()

    def close(self) -> None:
        """Forgets the area."""
        self._closer()

    def _set(self, group: int, places: Mapping[tuple[int, int], int]) -> None:
        pieces = self._groups[group]
        number = {id(variable): i for i, variable in enumerate(_variables(pieces))}
        rows, at = [], 0
        for piece in pieces:
            place = places[group, at] if places else self._bases[group] + at
            rows.append((number[id(piece.variable)], piece.start, piece.nbytes, place))
            at += piece.nbytes
        self._area.set_group(group, rows)


class _Own:
    """Keeps the area's own memory while it is referenced."""

    def __init__(self, area: veloc_bindings.Area) -> None:
        weakref.finalize(self, _drop, area)


def _drop(area: veloc_bindings.Area) -> None:
    with contextlib.suppress(EngineFault):  # closed already, and the memory with it
        area.drop()


def _variables(pieces: Sequence[Piece]) -> list:
    return list({id(piece.variable): piece.variable for piece in pieces}.values())
