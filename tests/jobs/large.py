"""One process with a variable above 2 GiB: large.py API FOLDER. Trains two steps with a checkpoint in FOLDER/run, looks at it with
h5py and through ``read``, and restores it into the model, whose variable was changed."""

import importlib
import sys
from pathlib import Path

import h5py
import numpy as np
import tensorflow as tf

import deepfreeze
from deepfreeze.frameworks.tensorflow.variables import tf_variable
from tests.support import trainings

SIZE = (1 << 29) + 1_000_003  # of float32: 2 GiB and 4 MB
PARTS = [slice(at, at + 1000) for at in (0, (1 << 29) - 500, SIZE - 1000)]


def values(part):
    return np.arange(part.start, part.stop).astype(np.float32)


def check(large):
    for part in PARTS:
        assert np.array_equal(large[part], values(part))


def main(api, folder):
    keras = importlib.import_module(api)

    class Large(keras.layers.Layer):
        """Adds the last element of one variable."""

        def build(self, _):
            self.large = self.add_weight(shape=(SIZE,), initializer="zeros", name="large", trainable=False)

        def call(self, x):
            return x + self.large[-1]

    layers = [keras.layers.Input((trainings.FEATURES,)), Large(), keras.layers.Dense(1)]
    model = keras.Sequential(layers)
    model.compile("adam", "mse", jit_compile=False)
    large = tf_variable(model.layers[0].large)
    for part in PARTS:
        large[part].assign(values(part))
    checkpoint = deepfreeze.Checkpoint(folder / "run", every=2, local=None)
    model.fit(trainings.data(2), verbose=0, shuffle=False, callbacks=[checkpoint])
    with deepfreeze.read(folder / "run") as tensors:
        name = max(tensors, key=lambda name: tensors.structure.by_name[name].nbytes)
        check(tensors[name])
        path = tensors.structure.by_name[name].path
    with h5py.File(deepfreeze.latest(folder / "run").path / "model.weights.h5") as file:
        check(file[path])
    for part in PARTS:
        large[part].assign(tf.zeros(1000))
    deepfreeze.restore(model, folder / "run")
    check(large)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
