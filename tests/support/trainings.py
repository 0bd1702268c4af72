"""Small trainings on either Keras, and what is proved about each: a checkpoint holds, bit for bit, what Keras itself would have
saved after that step. Imports TensorFlow."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import deepfreeze
from tests.support import h5

FEATURES = 6


def data(steps: int, classes: int = 0, batch: int = 2) -> tf.data.Dataset:
    """``steps`` batches, always the same ones; targets are numbers, or one of ``classes``."""
    rng = np.random.default_rng(0)
    x = rng.random((steps * batch, FEATURES), np.float32)
    y = rng.integers(0, classes, (steps * batch, 1)) if classes else rng.random((steps * batch, 1), np.float32)
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(batch, drop_remainder=True)


def dense(keras: Any, optimizer: Any = "adam", cls: Any = None, **compiling: Any) -> Any:
    """A model of two layers, compiled."""
    keras.utils.set_random_seed(1)
    layers = keras.layers
    model = (cls or keras.Sequential)([keras.Input((FEATURES,)), layers.Dense(8, "relu"), layers.Dense(1)])
    model.compile(optimizer, "mse", **{"jit_compile": False, **compiling})
    return model


def count(optimizer: Any) -> int:
    """Updates done."""
    return int(np.asarray(optimizer.iterations))


def save_weights(keras: Any, folder: Path, optimizer: Any = None) -> Any:
    """A callback: stock ``save_weights`` after each batch that ends with an update, to FOLDER/STEP.weights.h5."""

    class SaveWeights(keras.callbacks.Callback):
        """See above."""

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            """Saves, unless this step was saved: what follows it is no step of its own."""
            file = folder / f"{count(optimizer or self.model.optimizer)}.weights.h5"
            if not file.exists():
                self.model.save_weights(file)

    return SaveWeights()


def assert_as_keras_saves_it(
    keras: Any, model: Any, folder: Path, x: Any = None, every: int = 1, optimizer: Any = None, **fitting: Any
) -> list[int]:
    """Trains with a checkpoint at every step; compares each with stock ``save_weights``. Returns the steps."""
    options = {} if optimizer is None else {"optimizer": optimizer}
    checkpoint = deepfreeze.Checkpoint(folder / "run", every=every, keep=100, **options)
    callbacks = [save_weights(keras, folder, optimizer), checkpoint]
    fitting = {"verbose": 0, "shuffle": False, **fitting}
    model.fit(data(5) if x is None else x, callbacks=callbacks, **fitting)
    return assert_run_is(folder / "run", folder)


def assert_run_is(run: str | os.PathLike, folder: Path) -> list[int]:
    """Every checkpoint of ``run`` has the datasets, bit for bit, of FOLDER/STEP.weights.h5. Returns the steps."""
    found = deepfreeze.checkpoints(run)
    assert found
    for info in found:
        h5.assert_same(info.path / "model.weights.h5", folder / f"{info.step}.weights.h5")
    return [info.step for info in found]
