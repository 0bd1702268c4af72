"""What a capture consists of, whichever memory it goes to. Imports no TensorFlow."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np


@dataclass(frozen=True)
class Piece:
    """Bytes ``start`` to ``stop`` of a flattened ``tf.Variable``; ``key`` says whose they are."""

    key: int
    variable: Any
    start: int
    stop: int

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.stop - self.start


@dataclass(frozen=True)
class Captured:
    """One capture. ``bases``: the address of each group's buffer (uint64); if ``planned``, of the one memory in which every
    piece has the place that ``EngineBuffers.plan`` gave it. It stays as it is while ``hold`` is referenced; what is
    planned, until it is handed over or captured again."""

    bases: np.ndarray
    hold: Any
    planned: bool

    def read(self, group: int, place: int, nbytes: int) -> bytes:
        """A copy of some of it."""
        return ctypes.string_at(int(self.bases[0 if self.planned else group]) + place, nbytes)


class Buffers(Protocol):
    """Where captures go: ``graph_buffers``, ``engine_buffers``."""

    def add(self, pieces: Sequence[Piece]) -> int:
        """A new group; returns its number, counted from 0."""

    def write(self, group: int, pieces: Sequence[Piece]) -> None:
        """In the function being traced: copies the group's pieces."""

    def collect(self) -> Captured:
        """Ends a capture. ``EngineFault`` if there was no memory for it."""

    def discard(self) -> None:
        """Before there is an engine: forgets a capture that was begun and will not be ended."""

    def close(self) -> None:
        """Gives everything back."""
