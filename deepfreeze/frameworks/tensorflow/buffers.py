"""The memory that captured pieces are copied to. Two implementations: ``engine_buffers`` (the engine's memory) and ``graph_buffers``
(TensorFlow's own)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from deepfreeze.frameworks.framework import Captured, EngineMemory, Piece


class Buffers(Protocol):
    """Groups of pieces. A piece's number counts the pieces of all groups, in the order in which the groups were added. The training
    thread calls all methods: ``write`` while a function is traced, the others outside of any graph."""

    @property
    def engine_memory(self) -> EngineMemory | None:
        """How pieces get places in the engine's memory; None if they lie in TensorFlow's."""

    def add(self, pieces: Sequence[Piece]) -> int:
        """A new group; returns its number, counted from 0."""

    def write(self, group: int) -> None:
        """In the function being traced: copies the group's pieces."""

    def collect(self) -> Captured:
        """Ends a capture. ``EngineFault`` if there was no memory for it."""

    def discard(self) -> None:
        """Forgets a capture that will not be collected, and frees its memory."""

    def close(self) -> None:
        """Gives everything back. Safe to call twice."""
