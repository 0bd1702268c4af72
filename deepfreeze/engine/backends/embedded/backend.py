"""The engine in the training process (``native/``) as a backend."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import veloc_bindings
from deepfreeze.engine.backend import BackendCapabilities, BackendKind, Opening
from deepfreeze.errors import EngineError
from veloc_bindings import REFUSE_ALL, REFUSE_FIRST, REFUSE_NONE, EmbeddedEngine, LibraryError, SlotInfo

# Where the ranks of a node share a page of memory. On a system without this directory each rank does without.
_SHARED_MEMORY = "/dev/shm"
# The options of ``Engine`` that are no numbers of the native engine's by the same name.
_OTHERWISE = {"rate", "io", "when_full"}
_REFUSES = {"auto": REFUSE_FIRST, "warn": REFUSE_NONE, "raise": REFUSE_ALL}


class EmbeddedBackend(EmbeddedEngine):
    """One rank's engine. Implements ``backend.Backend``, and the other protocols there, by the methods of ``EmbeddedEngine``."""

    def __init__(self, in_memory: bool, **options: Any) -> None:
        super().__init__(**options)
        self._in_memory = in_memory

    @classmethod
    def of(cls, opening: Opening) -> EmbeddedBackend:
        """Starts the engine's threads."""
        target, engine = opening.target, opening.engine.counted()
        numbers = {one.name: getattr(engine, one.name) or 0 for one in fields(engine) if one.name not in _OTHERWISE}
        return cls(
            opening.in_memory,
            **numbers,
            rate=engine.rate_of_rank(max(1, len(opening.node))),
            cached=engine.io == "buffered",
            rank=opening.rank,
            world=opening.world,
            hashes=opening.hashes,
            refuse_diverged=_REFUSES[opening.on_divergence],
            bounded=opening.bounded,
            one_memory=opening.one_memory,
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

    def plan(self, regions: Any, private_nbytes: int = 0, side_nbytes: int = 0) -> list[int]:
        """Has the engine make its memory, if captures will lie there."""
        return super().plan(regions, private_nbytes, side_nbytes) if self._in_memory else []


def load() -> None:
    """Loads the engine's library."""
    try:
        veloc_bindings.version()
    except LibraryError as error:
        raise EngineError(where=error.where, expected=error.expected, found=error.found, todo=error.todo) from error


class EmbeddedRescue:
    """Implements ``backend.Rescue``, which explains the methods."""

    def slot(self, path: str) -> SlotInfo:
        """Reads the slot's header."""
        return veloc_bindings.slot_inspect(path)

    def transfer(self, path: str, run: str) -> None:
        """Compares every checksum, and publishes the rank's record."""
        veloc_bindings.slot_transfer(path, run)

    def commit(self, run: str, step: int, attempt: str) -> None:
        """Compares the model file with the checksums of all records first."""
        veloc_bindings.commit(run, step, bytes.fromhex(attempt))


KIND = BackendKind(
    load,
    EmbeddedBackend.of,
    BackendCapabilities(
        memory=True,
        holds=True,
        supersedes=True,
        tunes=True,
        tells=True,
        in_run=True,
        hashes=True,
        bounded=True,
        capture_size=veloc_bindings.capture_size,
        probe=veloc_bindings.probe,
        rescue=EmbeddedRescue(),
    ),
)
