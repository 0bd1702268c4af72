"""Where a capture's bytes go. Two implementations: ``engine_buffers`` (the engine's memory) and ``graph_buffers`` (TensorFlow's)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

import veloc_bindings
from deepfreeze.frameworks.framework import Captured, Piece


class Buffers(Protocol):
    """Groups of pieces; a piece's number counts the pieces of all groups, in the order in which they were added. The training thread
    calls all methods; ``write`` while a function is traced, the others outside of any graph."""

    @property
    def area(self) -> veloc_bindings.Area | None:
        """Through which captures go to the engine's memory; None if they can't."""

    def add(self, pieces: Sequence[Piece]) -> int:
        """A new group; returns its number, counted from 0."""

    def write(self, group: int) -> None:
        """In the function being traced: copies the group's pieces."""

    def place(self, places: np.ndarray) -> None:
        """Gives each piece a byte offset in the engine's memory, int64 of shape (pieces,), from the next capture on."""

    def collect(self) -> Captured:
        """Ends a capture. ``EngineFault`` if there was no memory for it."""

    def discard(self) -> None:
        """Before there is an engine: forgets a capture that was begun and will not be ended."""

    def close(self) -> None:
        """Gives everything back. Safe to call twice."""
