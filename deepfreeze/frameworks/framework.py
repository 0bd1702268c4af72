"""What freeze asks of a framework: the captures of one model on one rank. ``frameworks/tensorflow`` implements it. Imports no framework."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

import veloc_bindings


@dataclass(frozen=True)
class Piece:
    """Bytes ``start`` to ``stop`` of a flattened variable, which this rank captures. Pieces are named by their number in
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
    """The bytes of one capture. ``addresses``: where each piece lies, uint64 of shape (pieces,). The memory keeps these bytes as long
    as ``hold`` is referenced; if ``hold`` is None the memory is the engine's, and keeps them until the capture is handed over, or
    the next capture is collected."""

    addresses: np.ndarray
    hold: Any

    def read(self, piece: int, nbytes: int) -> bytes:
        """A copy of a piece's bytes."""
        return ctypes.string_at(int(self.addresses[piece]), nbytes)


class Capture(Protocol):
    """Captures of one model's training state, from construction to ``close``. All methods are called by the training thread, between two
    executions of the train function."""

    @property
    def area(self) -> veloc_bindings.Area | None:
        """Through which captures go to the engine's memory; None if this framework captures into memory of its own."""

    @property
    def pieces(self) -> Sequence[Piece]:
        """This rank's pieces, complete from the first execution on."""

    def captures(self, variable: Any) -> bool:
        """Whether some rank has pieces of this variable of the state."""

    def place(self, places: np.ndarray) -> None:
        """From the next capture on each piece goes to this byte offset in the engine's memory: int64 of shape (pieces,)."""

    def take(self) -> Captured:
        """Captures the state as it is now. ``EngineFault`` if there is no memory for it."""

    def collect(self, step: int) -> Captured:
        """The capture that the graph took at ``step``. ``EngineError`` if the last captured step is another one, ``EngineFault`` if
        there was no memory for it."""

    def memory_of(self, variable: Any) -> np.ndarray:
        """A variable's bytes as they are now, not copied: uint8 of shape (nbytes,)."""
