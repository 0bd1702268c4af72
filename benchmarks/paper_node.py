"""The program of one node in the paper's trend over nodes: a rank process without TensorFlow, which saves
a model's tensors by the paper's approaches."""

from __future__ import annotations

import time
from pathlib import Path

import h5py
import numpy as np

import veloc_bindings as vb
from benchmarks.scaling_rank import LIMIT, Rank, main


class Node(Rank):
    """A rank whose blocking phase is timed."""

    def blocking(self, job: int, step: int, fetched: list[int]) -> dict[str, float]:
        """Fetches tensors of that many bytes as fresh arrays, as numpy does outside the graph, and saves the job's shard. Seconds
        until the arrays are there, until the engine has taken the shard, and until it is on the local tier. Returns when all is over."""
        engine, regions, _ = self._jobs[job]
        source = np.frombuffer(self._memory, np.uint8)
        begin = time.perf_counter()
        held = [source[:nbytes].copy() for nbytes in fetched]
        ready = time.perf_counter()
        engine.submit(step, regions, timeout=LIMIT)
        taken = time.perf_counter()
        engine.wait(step, vb.LOCAL, LIMIT)
        local = time.perf_counter()
        del held
        engine.drain(LIMIT)
        self._reports(engine)
        self._remove_before(engine, step)
        return {"preparation": ready - begin, "captured": taken - begin, "blocking": local - begin}

    def hdf5(self, path: str, tensors: list[int]) -> dict[str, float]:
        """An HDF5 file with a dataset for each tensor of that many bytes, as Keras writes it: never synced. Seconds."""
        source = np.frombuffer(self._memory, np.uint8)
        begin = time.perf_counter()
        with h5py.File(path, "w") as file:
            for number, nbytes in enumerate(tensors):
                file.create_dataset(str(number), data=source[:nbytes].view(np.float32))
        blocking = time.perf_counter() - begin
        Path(path).unlink()
        return {"blocking": blocking}


if __name__ == "__main__":
    main(Node)
