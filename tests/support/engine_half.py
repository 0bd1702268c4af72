"""The engine's half of a store (native/store/store.h) over a directory, through the C interface: one engine for each rank of a sample."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import veloc_bindings
from deepfreeze.errors import CorruptError, EngineError
from deepfreeze.store.store import Store
from tests.support import files

SECONDS = 60  # a bound on every wait
MISSING_SECONDS = 0.2  # how long rank 0 waits for a record that nobody will write


def fault(store: Store, told: veloc_bindings.EngineFault) -> CorruptError | EngineError:
    """What Python's half says where the engine says this."""
    damaged = told.code in (veloc_bindings.CORRUPT, veloc_bindings.INCOMPLETE)
    return (CorruptError if damaged else EngineError)(where=store.path, expected="a commit", found=str(told), todo="-")


class EngineHalf:
    """Writes the shards of all ranks but rank 0 (``fill``); rank 0's engine then writes its own and commits (``publish``); another engine
    removes (``discard``)."""

    def __init__(self) -> None:
        self._filled: dict[tuple[int, str], files.Sample] = {}

    def engine(self, store: Store, made: files.Sample, attempt: str, rank: int = 0) -> veloc_bindings.EmbeddedEngine:
        """The engine of one rank of an attempt that saves this sample."""
        ids = {"run_id": bytes.fromhex(files.RUN_ID), "attempt": bytes.fromhex(attempt)}
        return veloc_bindings.EmbeddedEngine(
            run_dir=store.path, local_dir=None, structure=bytes.fromhex(made.hash), file_size=len(made.content),
            rank=rank, world=len(made.extents), commit_timeout=MISSING_SECONDS, writers=2, chunk_bytes=4096, **ids,
        )  # fmt: skip

    def _submit(self, engine: veloc_bindings.EmbeddedEngine, step: int, made: files.Sample, rank: int) -> Any:
        regions = [(made.content[at : at + n], n, at) for at, n in made.extents[rank]]
        engine.submit(step, regions, made.private(rank), SECONDS, made.section(rank) or b"")
        return regions  # the memory that the engine reads

    def fill(self, store: Store, step: int, made: files.Sample, attempt: str = files.ATTEMPT) -> None:
        store.put(f"structures/{made.hash}.json", made.structure)
        self._filled[step, attempt] = made
        for rank in range(1, len(made.extents)):
            with self.engine(store, made, attempt, rank) as engine:
                held = self._submit(engine, step, made, rank)
                engine.wait(step, veloc_bindings.LOCAL, SECONDS)  # it is sealed
            del held

    def publish(self, store: Store, step: int, attempt: str) -> None:
        made = self._filled[step, attempt]
        with self.engine(store, made, attempt) as engine:
            held = self._submit(engine, step, made, 0)
            try:
                engine.wait(step, veloc_bindings.EXTERNAL, SECONDS)
            except veloc_bindings.EngineFault as told:
                raise fault(store, told) from told
            engine.drain(SECONDS)
        del held

    def discard(self, store: Store, step: int, attempt: str = files.ATTEMPT) -> None:
        """EngineError if the engine says that it could not."""
        made = files.sample()
        with self.engine(store, made, attempt) as engine:
            engine.remove([step])
            engine.drain(SECONDS)
            notices = [report.message for report in engine.poll() if report.step < 0]
        if notices:
            raise EngineError(where=store.path, expected="a removal", found=notices[0], todo="-")


def newest(store: Store) -> int | None:
    """The newest committed step, as the engine sees it."""
    return veloc_bindings.newest(os.fspath(Path(store.path)))
