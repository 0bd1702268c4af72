"""The protocol of the memory to which captured pieces are copied. It has two implementations: ``engine_buffers`` (the engine's memory) and
``graph_buffers`` (TensorFlow's own memory)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from deepfreeze.frameworks.state_capture import CapturedState, EngineMemory, Piece


class Buffers(Protocol):
    """Memory for captures, in groups of pieces. A capture consists of all groups. A piece's number counts the pieces of all groups, in the
    order in which the groups were added.

    The training thread calls all methods. ``add`` and ``write`` are also called while Keras traces the train function; the other methods
    are called between two executions, when no capture is under way."""

    @property
    def engine_memory(self) -> EngineMemory | None:
        """The object that gives pieces their places in the engine's memory. None if pieces are copied to TensorFlow's own memory."""

    def add(self, pieces: Sequence[Piece]) -> int:
        """Adds a group and returns its number, counted from 0. All groups are added before the first ``collect``; none is ever removed."""

    def follow(self, group: int, pieces: Sequence[Piece]) -> None:
        """Has the group's pieces come from other variables: ``pieces`` are as long as those that were added, in the same order. To be
        called before ``write`` is called again for the group."""

    def write(self, group: int) -> None:
        """Adds ops to the graph that is being traced, which copy the group's pieces when they run. Called once for each group after
        ``add``, and once after each ``follow``. In a captured step the ops may run twice: the second copy, after the last write to the
        variables, is the one that counts. The caller guarantees that nothing writes to the variables while the ops run."""

    def collect(self) -> CapturedState:
        """Ends a capture and returns it. Called once for each captured step, after the ops of all groups have run. ``EngineFault`` if there
        was no memory for the capture."""

    def discard(self) -> None:
        """Forgets a capture that will not be collected, and frees its memory. Does nothing if there is none."""

    def close(self) -> None:
        """Gives all memory back, except what a ``CapturedState`` still holds. Nothing is captured afterwards. Safe to call twice."""
