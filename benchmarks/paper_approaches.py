"""How the paper's approaches save a model's weights, each through the same few calls. Imports TensorFlow.

``save(step)`` returns the seconds until the data was ready to be written (None where that can't be told apart) and the seconds
until training may go on. ``settle()`` then waits, outside what is timed, until nothing of it is going on in the background.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import deepfreeze
from deepfreeze.format.tensors import RANK_LOCAL, REPLICATED, TensorSpec
from deepfreeze.plan.placement import UNIT, per_layer
from veloc_bindings import LOCAL, EmbeddedEngine

PATIENCE = 120.0  # seconds for any wait
Took = tuple[float | None, float]


class KerasDefault:
    """Rank 0: Keras's own HDF5 file, to the external store. It converts and writes layer by layer, so there is no preparation
    to be told apart, and it never fsyncs. The other ranks are not held up here, but wait for rank 0 in their next step."""

    def __init__(self, model: Any, rank: int, folder: Path) -> None:
        self._model, self._rank, self._file = model, rank, folder / "keras.weights.h5"

    def save(self, step: int) -> Took:
        """See the module."""
        begin = time.perf_counter()
        if self._rank == 0:
            self._model.save_weights(str(self._file))
        return None, time.perf_counter() - begin

    def settle(self) -> None:
        """Nothing goes on in the background, except in the kernel."""

    def close(self) -> None:
        """Nothing to close."""


class Raw:
    """Bytes through our bindings: a rank's part of a plain file, blocking until it is on the local tier."""

    def __init__(self, place: dict[str, str], rank: int, world: int, sizes: Sequence[Sequence[int]]) -> None:
        """``place``: run, local, run_id, attempt. ``sizes``: of every rank's pieces, which lie in the file one by one; each rank's
        first one begins a page, and zeros fill the last page of the rank before it."""
        padding = [-sum(mine) % UNIT for mine in sizes]
        starts = np.cumsum([0, *(sum(mine) + more for mine, more in zip(sizes, padding, strict=True))])
        self._padding = np.zeros(padding[rank], np.uint8)
        self._sizes = [*sizes[rank], padding[rank]]
        self._offsets = (int(starts[rank]) + np.cumsum([0, *self._sizes])[:-1]).tolist()
        self._held: Sequence[np.ndarray] = ()
        self._rank, self._saved = rank, list[int]()
        self._engine = EmbeddedEngine(
            run_dir=place["run"],
            local_dir=place["local"],
            run_id=bytes.fromhex(place["run_id"]),
            attempt=bytes.fromhex(place["attempt"]),
            structure=bytes(32),
            file_size=int(starts[-1]),
            rank=rank,
            world=world,
        )

    def save(self, step: int, arrays: Sequence[np.ndarray]) -> None:
        """Blocks until the local tier has them."""
        self._held = arrays
        rows = zip([*arrays, self._padding], self._sizes, self._offsets, strict=True)
        self._engine.submit(step, [(array, size, offset) for array, size, offset in rows if size], timeout=PATIENCE)
        self._engine.wait(step, LOCAL, PATIENCE)
        self._saved.append(step)

    def settle(self) -> None:
        """Waits for the commit, and has rank 0 remove the checkpoints before."""
        self._engine.drain(PATIENCE)
        if self._rank == 0:
            self._engine.remove(self._saved[:-1])
            self._engine.drain(PATIENCE)
        self._saved = self._saved[-1:]
        for report in self._engine.poll():
            if report.code:
                raise RuntimeError(report.message)
        self._held = ()

    def close(self) -> None:
        """Stops the engine."""
        self._engine.close()


class VelocSingle:
    """Rank 0: ``get_weights``, then our bindings."""

    def __init__(self, model: Any, rank: int, place: dict[str, str]) -> None:
        self._model = model
        self._raw = Raw(place, 0, 1, [[_nbytes(v) for v in model.weights]]) if rank == 0 else None

    def save(self, step: int) -> Took:
        """See the module."""
        begin = time.perf_counter()
        if self._raw is None:
            return 0.0, time.perf_counter() - begin
        arrays = [np.ascontiguousarray(array) for array in self._model.get_weights()]
        ready = time.perf_counter()
        self._raw.save(step, arrays)
        return ready - begin, time.perf_counter() - begin

    def settle(self) -> None:
        """See the module."""
        if self._raw is not None:
            self._raw.settle()

    def close(self) -> None:
        """Stops the engine."""
        if self._raw is not None:
            self._raw.close()


class VelocSharded:
    """All ranks: the variables as numpy arrays, outside the graph; of each its own rank's slice, through our bindings."""

    def __init__(self, model: Any, rank: int, world: int, place: dict[str, str]) -> None:
        trained = {id(v) for v in model.trainable_weights}
        self._weights = model.weights
        specs = [
            TensorSpec(v.path, v.dtype, tuple(v.shape), REPLICATED if id(v) in trained else RANK_LOCAL)
            for v in self._weights
        ]
        plan = per_layer(specs, world)
        self._shards = plan[rank]
        self._raw = Raw(place, rank, world, [[shard.nbytes for shard in shards] for shards in plan])

    def save(self, step: int) -> Took:
        """See the module."""
        begin = time.perf_counter()
        arrays = [
            self._weights[shard.tensor].numpy().reshape(-1).view(np.uint8)[shard.start : shard.stop]
            for shard in self._shards
        ]
        ready = time.perf_counter()
        self._raw.save(step, arrays)
        return ready - begin, time.perf_counter() - begin

    def settle(self) -> None:
        """See the module."""
        self._raw.settle()

    def close(self) -> None:
        """Stops the engine."""
        self._raw.close()


class Timed(deepfreeze.Checkpoint):
    """Ours, with a clock around its work at the end of a batch, and one around collecting what the graph has captured.

    ``levels``: step -> what training waits for there. The two levels differ in nothing else, so they take turns in one
    training, whose graph takes longer to trace than all that is measured in it.
    """

    def __init__(self, run: Path, levels: dict[int, str], **options: Any) -> None:
        super().__init__(run, At(sorted(levels)), state="weights", keep=1, final=False, resume="off", **options)
        self._path = run
        self._levels = levels
        self._collecting = 0.0
        self.took: dict[int, Took] = {}

    def on_train_begin(self, logs: Any = None) -> None:
        """Puts the second clock in."""
        super().on_train_begin(logs)
        capture = self._training._session._installation.capture
        collect = capture.collect

        def timed(step: int) -> Any:
            begin = time.perf_counter()
            found = collect(step)
            self._collecting = time.perf_counter() - begin
            return found

        capture.collect = timed  # type: ignore[method-assign]

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """What it always does, with the level and the clock of this step."""
        session = self._training._session
        step = session._steps.now()
        if step in self._levels:
            saver = session.saver
            saver._settings = replace(saver._settings, wait_for=self._levels[step])
        begin = time.perf_counter()
        super().on_train_batch_end(batch, logs)
        if step in self._levels:
            self.took[step] = self._collecting, time.perf_counter() - begin

    def settle(self) -> None:
        """Waits for the commit of the step saved last."""
        last, deadline = max(self.took), time.monotonic() + PATIENCE
        while (newest := deepfreeze.latest(self._path)) is None or newest.step < last:
            if time.monotonic() > deadline:
                raise TimeoutError(f"step {last} was not committed")
            time.sleep(0.02)  # looking takes CPU time, which is measured


class At:
    """A policy: just these steps."""

    def __init__(self, steps: Sequence[int]) -> None:
        self._steps = steps

    def next_step(self, step: int) -> int:
        """See ``deepfreeze.plan.policy.Policy``."""
        return next((due for due in self._steps if due > step), 2**62)


def _nbytes(variable: Any) -> int:
    return int(np.prod(variable.shape, dtype=np.int64)) * np.dtype(variable.dtype).itemsize
