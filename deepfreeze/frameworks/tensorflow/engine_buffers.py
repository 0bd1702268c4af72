"""Captures that lie in the engine's memory. An op, which the engine registers with TensorFlow, copies them there. Imports TensorFlow.

The op reads TensorFlow's own buffers and copies this rank's bytes of them to memory that the engine uses again and again. So a byte is
copied once, and nothing is allocated. On a memory-backed local tier that memory is the slot itself.

The engine is opened after the first step, when the layout of the model file is known. Until then captures lie in the area's own memory.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

import veloc_bindings
from deepfreeze.frameworks.framework import CapturedState, Piece
from veloc_bindings import EngineFault

# Bytes of a cache line. Each group begins one, because several threads copy groups at the same time.
_CACHE_LINE = 64
# Bytes of a page. Larger pieces begin one: direct writes are made from there without another copy.
_PAGE = 4096


def reason_against() -> str | None:
    """The reason why this process can't use the op, as text for the log. None if it can. Registers the op in the first call."""
    try:
        veloc_bindings.register_tensorflow()
    except EngineFault as fault:
        return str(fault)
    return None


class EngineBuffers:
    """A capture area (``veloc_bindings.Area``) and its groups. Implements ``buffers.Buffers`` and ``framework.EngineMemory``."""

    def __init__(self) -> None:
        """``EngineFault`` if there can't be another area."""
        self.area = veloc_bindings.Area()
        self._groups: list[Sequence[Piece]] = []
        # Each piece's offset in bytes, within the area's own memory and within the engine's memory of a capture.
        self._area_places: list[int] = []
        self._area_nbytes = 0
        self._engine_places: np.ndarray | None = None
        # The user may drop the callback, and with it this object, without close().
        self._finalizer = weakref.finalize(self, self.area.close)

    @property
    def engine_memory(self) -> EngineBuffers:
        """This object."""
        return self

    def add(self, pieces: Sequence[Piece]) -> int:
        """See ``buffers.Buffers``. The pieces get places in the area's own memory."""
        first = len(self._area_places)
        at = self._area_nbytes
        for piece in pieces:
            if piece.nbytes >= _PAGE:
                at = -(-at // _PAGE) * _PAGE
            self._area_places.append(at)
            at += piece.nbytes
        self._area_nbytes = -(-at // _CACHE_LINE) * _CACHE_LINE
        self._groups.append(pieces)
        self._set_group(len(self._groups) - 1, self._area_places[first:])
        return len(self._groups) - 1

    def follow(self, group: int, pieces: Sequence[Piece]) -> None:
        """See ``buffers.Buffers``."""
        self._groups[group] = pieces

    def write(self, group: int) -> None:
        """See ``buffers.Buffers``. Adds one op, ``DeepfreezeCapture``."""
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
        if self._engine_places is not None and np.array_equal(places, self._engine_places):
            return  # the next training on the same captures
        first = 0
        for group, pieces in enumerate(self._groups):
            self._set_group(group, places[first : first + len(pieces)].tolist())
            first += len(pieces)
        self._engine_places = places  # last: after a fault the next call places all groups again

    def collect(self) -> CapturedState:
        """See ``buffers.Buffers``."""
        base, own = self.area.collect()
        places = self._area_places if own or self._engine_places is None else self._engine_places
        return CapturedState(np.uint64(base) + np.asarray(places, np.uint64), _AreaMemory(self.area) if own else None)

    def discard(self) -> None:
        """See ``buffers.Buffers``."""
        with contextlib.suppress(EngineFault):  # raised if the area is closed
            self.area.discard()
        _free(self.area)

    def close(self) -> None:
        """Closes the area."""
        self._finalizer()

    def _set_group(self, group: int, places: Sequence[int]) -> None:
        pieces = self._groups[group]
        number = {id(variable): i for i, variable in enumerate(_variables(pieces))}
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


def _variables(pieces: Sequence[Piece]) -> list:
    """The variables of the pieces, each once. A variable's index in the list is its number within the group."""
    return list({id(piece.variable): piece.variable for piece in pieces}.values())
