"""The engine in the training process (``native/``) as a backend."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np

import veloc_bindings
from deepfreeze.errors import EngineError
from deepfreeze.freeze.backend import CaptureMemory, Opening
from veloc_bindings import REFUSE_ALL, REFUSE_FIRST, REFUSE_NONE, Area, LibraryError, Report, UnderWay

# Where the ranks of a node share a page of memory. On a system without this directory each rank does without.
_SHARED_MEMORY = "/dev/shm"
_REFUSES = {"auto": REFUSE_FIRST, "warn": REFUSE_NONE, "raise": REFUSE_ALL}


class EmbeddedBackend:
    """One rank's embedded engine. Implements ``backend.Backend`` and ``backend.CaptureMemory``, which explain the methods."""

    has_memory: ClassVar[bool] = True

    def __init__(self, opening: Opening) -> None:
        target, engine = opening.target, opening.engine.counted()
        self._in_memory = opening.in_memory
        self._engine = veloc_bindings.EmbeddedEngine(
            rank=opening.rank,
            world=opening.world,
            in_flight=engine.in_flight or 0,  # never None here
            slots=engine.slots or 0,
            writers=engine.writers,
            hashes=opening.hashes,
            refuse_diverged=_REFUSES[opening.on_divergence],
            nice=engine.nice,
            rate=engine.rate_of_rank(max(1, len(opening.node))),
            uncommitted=engine.uncommitted or 0,
            transfers=engine.transfers,
            cached=engine.io == "buffered",
            bounded=opening.bounded,
            one_memory=opening.one_memory,
            chunk_bytes=engine.chunk_bytes,
            file_size=opening.file_size,
            commit_timeout=opening.timeout,
            run_id=bytes.fromhex(target.run_id),
            attempt=bytes.fromhex(target.attempt),
            structure=opening.structure,
            run_dir=target.run,
            local_dir=opening.local,
            node=opening.node,
            node_dir=_SHARED_MEMORY,
        )

    @classmethod
    def load(cls) -> None:
        """Loads the engine's library."""
        try:
            veloc_bindings.version()
        except LibraryError as error:
            raise EngineError(where=error.where, expected=error.expected, found=error.found, todo=error.todo) from error

    @classmethod
    def open(cls, opening: Opening) -> EmbeddedBackend:
        """Starts the engine's threads."""
        return cls(opening)

    def memory(self) -> CaptureMemory:
        """The engine's memory; on a local tier that is memory it is the slots."""
        return self

    def attach(self, area: Area, seconds: float) -> None:
        """See ``backend.CaptureMemory``."""
        self._engine.attach(area, seconds)

    def plan(self, regions: np.ndarray, private_nbytes: int, side_nbytes: int) -> list[int]:
        """Has the engine make its memory, if captures will lie there."""
        return self._engine.plan(regions, private_nbytes, side_nbytes) if self._in_memory else []

    def reserve(self, seconds: float) -> None:
        """Reserves memory of the engine's."""
        self._engine.reserve(seconds)

    def room(self) -> int:
        """See ``backend.Backend``."""
        return self._engine.room()

    def submit(self, step: int, regions: np.ndarray, private: bytes, seconds: float, values: bytes = b"") -> None:
        """See ``backend.Backend``."""
        self._engine.submit(step, regions, private, seconds, values)

    def fail(self, step: int, why: str) -> None:
        """See ``backend.Backend``."""
        self._engine.fail(step, why)

    def wait(self, step: int, level: int, seconds: float) -> None:
        """See ``backend.Backend``."""
        self._engine.wait(step, level, seconds)

    def poll(self) -> list[Report]:
        """See ``backend.Backend``."""
        return self._engine.poll()

    def progress(self) -> list[UnderWay]:
        """See ``backend.Backend``."""
        return self._engine.progress()

    def hold(self, step: int | None) -> bool:
        """See ``backend.Backend``."""
        return self._engine.hold(step)

    def replace(self, step: int, by: int) -> None:
        """See ``backend.Backend``."""
        self._engine.replace(step, by)

    def tune(self, writers: int, transfers: int, uncommitted: int) -> None:
        """See ``backend.Backend``."""
        self._engine.tune(writers, transfers, uncommitted)

    def supersede(self, step: int, by: int) -> None:
        """See ``backend.Backend``."""
        self._engine.supersede(step, by)

    def remove(self, steps: Iterable[int]) -> None:
        """See ``backend.Backend``."""
        self._engine.remove(steps)

    def drain(self, seconds: float) -> None:
        """See ``backend.Backend``."""
        self._engine.drain(seconds)

    def idle(self) -> float:
        """See ``backend.Backend``."""
        return self._engine.idle()

    def stats(self) -> dict[str, Any]:
        """The engine's counters."""
        return self._engine.stats()

    def close(self) -> None:
        """Ends the engine's threads."""
        self._engine.close()
