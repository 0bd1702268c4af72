"""The protocol between ``freeze`` and a framework: how the captures of one model, on one rank, are asked for. ``frameworks/tensorflow``
implements it. Imports no framework."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

import veloc_bindings


@dataclass(frozen=True)
class Piece:
    """Bytes ``start`` to ``stop`` of a flattened variable, which this rank captures. A piece is named by its number: its index in
    ``Capture.pieces``."""

    variable: Any
    start: int
    stop: int

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.stop - self.start


@dataclass(frozen=True, eq=False)
class Captured:
    """The bytes of one capture. ``addresses``: the address of each piece, uint64 of shape (pieces,).

    ``hold``: the object that owns the memory; the bytes stay as they are for as long as ``hold`` is referenced. None: the engine owns
    the memory, and the bytes stay until the capture is handed over to it, or until the next capture is collected."""

    addresses: np.ndarray
    hold: Any

    def read(self, piece: int, nbytes: int) -> bytes:
        """A copy of a piece's bytes."""
        return ctypes.string_at(int(self.addresses[piece]), nbytes)


class EngineMemory(Protocol):
    """The part of a capture that puts pieces straight into the engine's memory. The training thread calls ``place``, between two
    executions of the train function."""

    area: veloc_bindings.Area

    def place(self, places: np.ndarray) -> None:
        """From the next capture on, each piece goes to this byte offset in the engine's memory: int64 of shape (pieces,)."""


class Capture(Protocol):
    """Captures of one model's training state, from construction to ``close``. The training thread calls all methods, between two
    executions of the train function."""

    @property
    def engine_memory(self) -> EngineMemory | None:
        """None if this framework captures into memory of its own, which the engine then reads."""

    @property
    def pieces(self) -> Sequence[Piece]:
        """This rank's pieces. The list is complete after the first execution, in which the last variables come into being."""

    def captures(self, variable: Any) -> bool:
        """Whether a capture holds this variable, on this rank or on another one."""

    def take(self) -> Captured:
        """Captures the state as it is now. ``EngineFault`` if there is no memory for it."""

    def collect(self, step: int) -> Captured:
        """The capture that the graph took at ``step``. ``EngineError`` if the last captured step is another one, ``EngineFault`` if
        there was no memory for it."""

    def memory_of(self, variable: Any) -> np.ndarray:
        """A variable's bytes as they are now, not copied: uint8 of shape (nbytes,)."""
