"""Trains a small model, or restores one, on the Keras that is asked for; what its variables hold goes to a file, by their places.
Imports TensorFlow.

    versions.py KERAS write|restore|fail RUN VALUES
"""

import importlib
import sys

import numpy as np

import deepfreeze
from tests.support.state import tensors

name, what, run, file = sys.argv[1:]
keras = importlib.import_module(name)
keras.utils.set_random_seed(1 if what == "write" else 2)
layers = [
    keras.layers.Dense(200, "relu"),
    keras.layers.BatchNormalization(),
    keras.layers.Dropout(0.1),
    keras.layers.Dense(1),
]
model = keras.Sequential([keras.Input((6,)), *layers])
model.compile(keras.optimizers.Adam(1e-2), "mse", metrics=["mae"], jit_compile=False)


def keep():
    """Metrics are reset at every epoch."""
    held = {
        tensor.path: np.asarray(tensor.variable)
        for tensor in tensors(model)
        if not tensor.path.startswith(("metrics", "seeds"))
    }
    np.savez(file, **held)


if what == "fail":
    try:
        deepfreeze.restore(model, run)
    except deepfreeze.StructureError as error:
        print(error)
        sys.exit(0)
    sys.exit("it was restored")
if what == "restore":
    deepfreeze.restore(model, run)
    keep()
# And the run goes on.
checkpoint = deepfreeze.Checkpoint(run, every=3, keep=9, resume_epochs=False)
rng = np.random.default_rng(0)
x, y = rng.random((6, 6), np.float32), rng.random((6, 1), np.float32)
model.fit(x, y, batch_size=2, verbose=0, shuffle=False, callbacks=[checkpoint])
if what == "write":
    keep()
print(keras.__version__, checkpoint.stats.resumed, deepfreeze.latest(run).step)
