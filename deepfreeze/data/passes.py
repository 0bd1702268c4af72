"""The passes of an input, and the generators in which a Keras goes over them."""

from __future__ import annotations

from collections.abc import Iterator
from types import FrameType
from typing import Any, Protocol

_OTHERS = 8  # passes that are remembered beside the one that trains


class Pass(Protocol):
    """The ``length`` batches of a pass, in order. One thread at a time takes them; any thread may call ``stop``."""

    @property
    def length(self) -> int: ...

    @property
    def finished(self) -> bool:
        """True if all batches were taken, or ``stop`` was called."""

    def __iter__(self) -> Iterator[Any]: ...

    def stop(self) -> None:
        """Drops what is left."""


class Passes:
    """The passes of an input, each with the generator that goes over it. The pass that trains is known until the next one that trains
    begins, however many ``evaluate`` and ``predict`` come in between. Of the others the last few are known: those that are finished are
    forgotten first. Not thread-safe."""

    def __init__(self) -> None:
        self._last: tuple[FrameType, Pass] | None = None  # that trains
        self._others: list[tuple[FrameType, Pass]] = []

    def of(self, generator: FrameType) -> Pass | None:
        """The pass that this ``generator`` goes over; None if it has none yet, or if it is forgotten."""
        known = self._others if self._last is None else [self._last, *self._others]
        return next((batches for frame, batches in known if frame is generator), None)

    @property
    def training(self) -> bool:
        """True if a pass that trains has batches left."""
        return self._last is not None and not self._last[1].finished

    def stop_training(self) -> None:
        """Ends the pass that trains, whose generator may still ask: another one is about to begin."""
        last, self._last = self._last, None
        if last is not None:
            last[1].stop()
            self._keep(*last)

    def begin(self, generator: FrameType, batches: Pass, trains: bool) -> None:
        """This ``generator`` goes over these ``batches`` from now on. If the pass ``trains``, ``stop_training`` was called before."""
        if trains:
            self._last = generator, batches
        else:
            self._keep(generator, batches)

    def _keep(self, generator: FrameType, batches: Pass) -> None:
        self._others.append((generator, batches))
        if len(self._others) > _OTHERS:
            finished = (place for place, (_, other) in enumerate(self._others) if other.finished)
            del self._others[next(finished, 0)]
