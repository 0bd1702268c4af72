"""The training that ``benchmarks.recovery`` kills and starts again. Imports TensorFlow.

It is one process without Horovod, which trains until it is killed. It appends a line to a file for each moment that counts: a name, the
seconds of the system's monotonic clock, which all processes share, and the number of steps that are done.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

EPOCHS = 1_000_000  # more than any training reaches


class Marks:
    """The file of moments. A line is one write, so a kill leaves a whole line or none."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def add(self, name: str, step: int = 0) -> None:
        """Appends the present moment."""
        os.write(self._file, f"{name} {time.monotonic()!r} {step}\n".encode())


def main() -> None:
    """Trains. The argument is JSON: ``workload``, ``run``, ``marks``, ``every`` (steps between checkpoints; None: a training without),
    ``epoch`` (its steps) and ``keep``. Some members may be left out: ``mtbf`` (seconds between two kills: a ``Budget`` that knows them
    takes the place of ``every``), ``engine`` (options of the engine; as CheckFreq's without it), ``steps`` (after which the training
    ends), ``genes`` (NT3 of so many genes then learns Khan's tumours in batches of one, and an epoch has all of them)."""
    params = json.loads(sys.argv[1])
    marks = Marks(params["marks"])
    import keras
    import tensorflow as tf

    import deepfreeze
    from benchmarks import workloads
    from deepfreeze.frameworks.tensorflow.variables import tf_variable

    marks.add("imported")
    batches: Any
    options: dict[str, Any] = {}
    if "genes" in params:
        model, arrays = workloads.tumours(params["genes"])
        batches = deepfreeze.data.Resumable(arrays, batch_size=1, seed=1)
        options["data"] = batches
    else:
        model, x, y = workloads.model(params["workload"])
        batches = tf.data.Dataset.from_tensors((x, y)).repeat()
    marks.add("built")

    class Before(keras.callbacks.Callback):
        """Comes before the checkpoint's callback: a step is done before the callback hears of it."""

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            marks.add("step", int(tf_variable(model.optimizer.iterations).numpy()))

    class After(keras.callbacks.Callback):
        """Comes after the checkpoint's callback, which has then restored the model."""

        def on_train_begin(self, logs: Any = None) -> None:
            marks.add("restored", int(tf_variable(model.optimizer.iterations).numpy()))

    callbacks: list[Any] = [Before(), After()]
    if params["every"] is not None:
        engine = deepfreeze.Engine(**params.get("engine", {"uncommitted": 1}))
        every = deepfreeze.plan.Budget(mtbf=params["mtbf"]) if "mtbf" in params else params["every"]
        options |= {"every": every, "keep": params["keep"], "local": None, "final": False, "verbose": 0}
        options |= {name: params[name] for name in ("memory",) if name in params}
        callbacks.insert(1, deepfreeze.Checkpoint(params["run"], engine=engine, **options))
    steps = params.get("steps")
    of_epoch = None if "genes" in params else steps or params["epoch"]
    epochs = 1 if steps else EPOCHS
    model.fit(batches, epochs=epochs, steps_per_epoch=of_epoch, verbose=0, shuffle=False, callbacks=callbacks)


if __name__ == "__main__":
    main()
