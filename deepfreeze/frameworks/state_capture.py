"""The protocol by which a training, and its engine, ask a framework for the captures of one model on one rank. Imports no framework."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np

import veloc_bindings

State = TypeVar("State")  # state.training_state.TrainingState, see ``framework``


@dataclass(frozen=True)
class Piece:
    """The bytes ``start`` to ``stop`` (exclusive) of a flattened variable, which this rank captures. ``variable``: the variable's key. A
    piece's number is its index in ``StateCapture.pieces``."""

    variable: Any
    start: int
    stop: int

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.stop - self.start


@dataclass(frozen=True, eq=False)
class CapturedState:
    """The bytes of this rank's pieces at one step. ``addresses``: the address of each piece, uint64 of shape (pieces,).

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


class StateCapture(Protocol[State]):
    """The captures of one model's training state, from ``Framework.capture`` to ``close``. The training thread calls all methods, between
    two executions of the train function, so that no variable changes during a call. A method that reads values settles the model itself.
    Where captures are taken between two executions, ``arm``, ``check_applied`` and ``forget_unfinished`` have nothing to do, ``in_place``
    is True, ``may_be_late`` and ``held`` are False, ``collect`` is ``take``, and ``traced`` is never
    called. Nobody tells such a capture that the last variables were made: it takes ``state.grown()`` itself, when it is first asked for
    ``captures`` or ``pieces``, whichever comes first.

    ``variable``, as an argument: the model's own object, or its key.

    - ``state``: the captured training state. The first execution may replace it by a grown one, because Keras makes the last variables
      there.
    - ``traced``: the caller may set it to a function, which is called with the state, outside of the graph, each time that the end of a
      step has been traced.
    - ``asked``: whether the step was asked for what it writes; ``left_out``: the names of variables that it writes, that nobody lists, and
      that no checkpoint can hold."""

    state: State
    traced: Callable[[State], None]
    asked: bool
    left_out: list[str]

    # -- A training begins and ends. Several trainings may use the same captures, one after the other.

    def arm(self, step: int) -> None:
        """Sets the step that the train function captures, in place of the one before. Called before the first execution, and after each
        one in which the step has changed. Ends a rest."""

    def check_applied(self) -> None:
        """Called after the first execution. ``UnsupportedError`` if the step has not applied the optimizer whose updates are the steps."""

    def forget_unfinished(self) -> None:
        """Called after the first execution, before the pieces get places in the engine's memory: frees the memory of a capture whose step
        did not come about, because the optimizer skipped the update (a loss scale that overflowed)."""

    @property
    def in_place(self) -> bool:
        """True if the train function would still take the captures if it were made anew. A user may have replaced it. Called when the next
        training of the model begins."""

    def fingerprint(self) -> int:
        """One CRC32C over the values of all replicated variables. Ranks with equal values have the same one. Called when a training of
        several ranks begins, and after its second execution if the values differed."""

    def follow_metrics(self) -> None:
        """Called after an execution if captures are taken between two executions and the train function was made anew: ``compile`` gives a
        model other variables for the same metrics, and Keras 2 saves those. Metrics that were not there before are not captured."""

    def rest(self) -> None:
        """Ends captures until the next ``arm``, and frees the memory of the last one. Called when a training has ended, in whatever way:
        also by the garbage collector, while any function is traced."""

    def close(self) -> None:
        """Takes the captures out of the model. Safe to call twice."""

    # -- Captures.

    @property
    def engine_memory(self) -> EngineMemory | None:
        """The part that places pieces in the engine's memory, the same object in every call. None if the framework captures into memory of
        its own, which the engine then reads."""

    @property
    def pieces(self) -> Sequence[Piece]:
        """This rank's pieces. The saver asks for them after the model's first execution, in which Keras makes the last variables; from
        then on the list stays the same."""

    def captures(self, variable: Any) -> bool:
        """True if a capture has the bytes of this variable, on this rank or on another one. The saver asks after the first execution,
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
        """The capture that the train function took at ``step``; where it takes none, the state is captured in this call. Called at most
        once for a step, after the execution in which the step was; a capture of which a part is ``held`` may be collected after the next
        execution. ``EngineError`` if the last captured step is another one, ``EngineFault`` if there was no memory for the capture."""

    def memory_of(self, variable: Any) -> np.ndarray:
        """The bytes of the variable's value, uint8 of shape (bytes,): not a copy where the framework gives access to them. The caller only
        reads it, from any thread, and no longer than until the next execution. The saver asks once for each replicated variable of a
        checkpoint at which the ranks are compared."""
