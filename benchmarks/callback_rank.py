"""The callback's own time in one training, of whatever version of the project is installed: the samples as JSON on standard output.

Takes nothing from this folder, so that a version without this file can run it.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from typing import Any


def main() -> None:
    """Trains, and times each call of the callback after an execution."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--units", type=int, required=True, help="of two hidden layers")
    parser.add_argument("--every", type=int, default=10, help="(%(default)s)")
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--folder", help="where the run goes (default: the temporary directory)")
    args = parser.parse_args()
    import keras
    import numpy as np

    import deepfreeze

    keras.utils.set_random_seed(1)
    layers = [keras.Input((8,)), keras.layers.Dense(args.units), keras.layers.Dense(args.units), keras.layers.Dense(1)]
    model = keras.Sequential(layers)
    model.compile("adam", "mse", jit_compile=False)
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        checkpoint = deepfreeze.Checkpoint(f"{folder}/run", every=args.every, verbose=0)
        took: list[float] = []
        inner = checkpoint.on_train_batch_end

        def timed(batch: int, logs: Any = None) -> None:
            begin = time.perf_counter()
            inner(batch, logs)
            took.append(time.perf_counter() - begin)

        checkpoint.on_train_batch_end = timed
        rows = np.ones((2 * args.steps, 8), "f4")
        model.fit(rows, rows[:, :1], batch_size=2, shuffle=False, verbose=0, callbacks=[checkpoint])
    numbered = list(enumerate(took, 1))[args.steps // 10 :]  # the first ones trace, and open the engine
    at = [seconds for step, seconds in numbered if step % args.every == 0]
    between = [seconds for step, seconds in numbered if step % args.every]
    print(json.dumps({"at": at, "between": between}))


if __name__ == "__main__":
    main()
