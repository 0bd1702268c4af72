"""The protocol by which ``freeze`` asks a framework for the captures of one model on one rank. ``frameworks/tensorflow`` implements it.
Imports no framework."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

import veloc_bindings


@dataclass(frozen=True)
class Piece:
    """The bytes ``start`` to ``stop`` (exclusive) of a flattened variable, which this rank captures. A piece's number is its index in
    ``StateCapture.pieces``."""

    variable: Any
    start: int
    stop: int

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.stop - self.start


@dataclass(frozen=True, eq=False)
class CapturedState:
    """One capture: the bytes of this rank's pieces at one step. ``addresses``: the address of each piece, uint64 of shape (pieces,).

    ``hold``: the object that owns the memory. The bytes stay unchanged for as long as ``hold`` is referenced. None if the engine owns
    the memory. The bytes then stay unchanged until the capture is handed over to the engine; a capture that is not handed over is
    lost when the next one is collected."""

    addresses: np.ndarray
    hold: Any

    def read(self, piece: int, nbytes: int) -> bytes:
        """A copy of a piece's bytes."""
        return ctypes.string_at(int(self.addresses[piece]), nbytes)


class EngineMemory(Protocol):
    """The part of a ``StateCapture`` that copies pieces straight into the engine's memory. ``area``: the capture area, to which the caller
    attaches an engine after ``place``."""

    area: veloc_bindings.Area

    def place(self, places: np.ndarray) -> None:
        """Sets the place of each piece from the next capture on. ``places``: offsets in bytes within the memory of a capture, int64 of
        shape (pieces,), in the order of ``StateCapture.pieces``. The training thread calls it once for each engine, between two
        executions of the train function. A capture that was taken before and is not collected yet stays where it is. ``EngineFault`` if
        the area refuses a place."""


class StateCapture(Protocol):
    """The captures of one model's training state. The training thread calls all methods, between two executions of the train function, so
    that no variable changes during a call."""

    @property
    def engine_memory(self) -> EngineMemory | None:
        """The part that places pieces in the engine's memory, the same object in every call. None if the framework captures into memory of
        its own, which the engine then reads."""

    @property
    def pieces(self) -> Sequence[Piece]:
        """This rank's pieces. The saver asks for them after the model's first execution, in which Keras makes the last variables; from
        then on the list stays the same."""

    def captures(self, variable: Any) -> bool:
        """Whether a capture has the bytes of this variable, on this rank or on another one. The saver asks after the first execution,
        once for each variable that is to be saved."""

    def take(self) -> CapturedState:
        """Captures the state as it is now, in this call. ``EngineFault`` if there is no memory for the capture."""

    @property
    def may_be_late(self) -> bool:
        """Whether the train function may leave a part of a capture to the next step (``held``). The same on all ranks."""

    @property
    def held(self) -> bool:
        """Whether the train function has left a part of its last capture to the next step. That step, or else ``collect``, copies the part
        as it was in the captured step. Until one of them has, nothing else may be captured."""

    def collect(self, step: int) -> CapturedState:
        """The capture that the train function took at ``step``. Called at most once for a step, after the execution in which the step
        was; a capture of which a part is ``held`` may be collected after the next execution. ``EngineError`` if the last captured step is
        another one, ``EngineFault`` if there was no memory for the capture."""

    def memory_of(self, variable: Any) -> np.ndarray:
        """The variable's own memory, not a copy: uint8 of shape (bytes,). The caller only reads it, from any thread, and no longer than
        until the next execution. The saver asks once for each replicated variable of a checkpoint at which the ranks are compared."""
