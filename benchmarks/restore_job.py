"""One rank of the job that writes the checkpoint for ``benchmarks.restore``: two steps of training, one checkpoint.

The moment it is on the local tier, and before training goes on, the slots get a second name in a folder of their own, and so
does what the run holds then: that is what a job leaves that dies there. The job itself goes on until all is committed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from typing import Any

from benchmarks import jobs, workloads

STEP = 1


def measure(params: dict[str, Any]) -> dict[str, Any]:
    """``workload``, ``run``, ``slots`` (the local tier) and ``dead`` (where the second names go, or None)."""
    import horovod.tensorflow as hvd
    import keras
    import tensorflow as tf

    import deepfreeze

    model, x, y = workloads.model(params["workload"], distributed=hvd.size() > 1)
    checkpoint = deepfreeze.Checkpoint(
        params["run"], every=STEP, wait_for="local", local=params["slots"], final=False, verbose=0
    )

    class Death(keras.callbacks.Callback):
        """Behind the checkpoint, which returns once the slot is whole."""

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if params["dead"] and batch == STEP - 1:
                leave(Path(params["run"]), Path(params["slots"]), Path(params["dead"]))

    batches = tf.data.Dataset.from_tensors((x, y)).repeat(STEP)
    callbacks = [deepfreeze.BroadcastState(), checkpoint, Death()]
    model.fit(batches, verbose=0, shuffle=False, callbacks=callbacks)
    return {"step": checkpoint.stats.steps[-1], "bytes": checkpoint.stats.nbytes}


def leave(run: Path, slots: Path, dead: Path) -> None:
    """Keeps what is there now: identity and structures of the run, and the slots."""
    # The slots first: they may be given up as soon as the checkpoint is committed.
    link(slots, dead / "slots")
    shutil.copytree(run, dead / "run", ignore=shutil.ignore_patterns("step-*", "lock"))


def link(tree: Path, to: Path) -> None:
    """The same files in another tree, of the same file system; half-made ones may vanish meanwhile."""
    for folder, _, files in os.walk(tree):
        place = to / Path(folder).relative_to(tree)
        place.mkdir(parents=True, exist_ok=True)
        for name in files:
            with contextlib.suppress(FileNotFoundError):
                os.link(Path(folder, name), place / name)


if __name__ == "__main__":
    jobs.serve(measure)
