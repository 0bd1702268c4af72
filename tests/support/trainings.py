"""Small trainings on Keras 3 and Keras 2, and the assertion about each of them: a checkpoint has, bit for bit, what Keras itself saves
after that step of the same training without DeepFreeze. Imports TensorFlow."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import deepfreeze
from tests.support import h5

FEATURES = 6
METRICS = "metrics"  # the group in which Keras 2 saves the running means of losses and metrics


def data(steps: int, classes: int = 0, batch: int = 2) -> tf.data.Dataset:
    """(x, y) for ``steps`` batches, the same in each call. The targets are numbers, or class numbers if ``classes`` is given."""
    rng = np.random.default_rng(0)
    x = rng.random((steps * batch, FEATURES), np.float32)
    y = rng.integers(0, classes, (steps * batch, 1)) if classes else rng.random((steps * batch, 1), np.float32)
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(batch, drop_remainder=True)


def dense(keras: Any, optimizer: Any = "adam", cls: Any = None, units: int = 8, **compiling: Any) -> Any:
    """A compiled model of two layers, the first of so many units."""
    keras.utils.set_random_seed(1)
    layers = keras.layers
    model = (cls or keras.Sequential)([keras.Input((FEATURES,)), layers.Dense(units, "relu"), layers.Dense(1)])
    model.compile(optimizer, "mse", **{"jit_compile": False, **compiling})
    return model


def count(optimizer: Any) -> int:
    """How many updates an optimizer has done."""
    return int(np.asarray(optimizer.iterations))


def save_weights(keras: Any, folder: Path, optimizer: Any = None) -> Any:
    """A callback that calls stock ``save_weights`` after each batch that ends with an update; it writes FOLDER/STEP.weights.h5."""

    class SaveWeights(keras.callbacks.Callback):
        """See ``save_weights``."""

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            """Saves too: at the end of data of unknown size Keras counts a step without a batch."""
            self.on_train_batch_end(-1)

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            """Saves, unless this step is saved already: then the batch has ended without an update."""
            step = count(optimizer or self.model.optimizer)
            file = folder / f"{step}.weights.h5"
            if step and not file.exists():
                self.model.built = (
                    True  # Keras 3 saves no model whose own ``call`` has never run, whatever its train_step does
                )
                self.model.save_weights(file)

    return SaveWeights()


def alike(keras: Any, make: Callable[[], Any]) -> Any:
    """A model made by ``make``, with the same random numbers in each call."""
    keras.utils.set_random_seed(1)
    return make()


def train_undisturbed(
    keras: Any, make: Callable[[], Any], folder: Path, x: Any = None, optimizer: str | None = None, **fitting: Any
) -> Any:
    """Trains a model made by ``make`` as ``assert_as_keras_saves_it`` does, without DeepFreeze. Stock Keras saves FOLDER/STEP.weights.h5
    after each step. Returns the model."""
    model = alike(keras, make)
    counting = getattr(model, optimizer) if optimizer else None
    _fit(model, x, [save_weights(keras, folder, counting)], fitting)
    return model


def assert_as_keras_saves_it(
    keras: Any,
    make: Callable[[], Any],
    folder: Path,
    x: Any = None,
    every: int = 1,
    optimizer: str | None = None,
    more: Collection[str] = (),
    **fitting: Any,
) -> list[int]:
    """Trains two equal models made by ``make``: one by itself, saved by stock Keras after each step, and one with checkpoints, which
    must be those files and no more or fewer. Returns the steps.

    ``x``: what ``fit`` is given, or a function that makes it; ``optimizer``: the attribute whose updates are the steps; ``more``: see
    ``assert_run_is``.
    """
    train_undisturbed(keras, make, folder, x, optimizer, **fitting)
    model = alike(keras, make)
    options = {"optimizer": getattr(model, optimizer)} if optimizer else {}
    _fit(model, x, [deepfreeze.Checkpoint(folder / "run", every=every, keep=100, **options)], fitting)
    steps = stock_steps(folder)
    return assert_run_is(
        folder / "run", folder, [step for step in steps if step % every == 0 or step == steps[-1]], more=more
    )


def stock_steps(folder: Path) -> list[int]:
    """The steps that stock Keras has saved in this folder."""
    return sorted(int(file.name.split(".")[0]) for file in folder.glob("*.weights.h5"))


def assert_run_is(
    run: str | os.PathLike, folder: Path, steps: list[int], resumed: bool = False, more: Collection[str] = ()
) -> list[int]:
    """Asserts that ``run`` has checkpoints of exactly these steps, and that each has, bit for bit, the datasets of
    FOLDER/STEP.weights.h5. ``resumed``: apart from the metrics, which Keras 2 saves and sets to zero when ``fit`` begins; ``more``: see
    ``h5.assert_same``."""
    found = deepfreeze.checkpoints(run)
    assert [info.step for info in found] == steps and steps
    for info in found:
        expected = folder / f"{info.step}.weights.h5"
        h5.assert_same(info.path / "model.weights.h5", expected, METRICS if resumed else None, more)
    return steps


def _fit(model: Any, x: Any, callbacks: list[Any], fitting: dict[str, Any]) -> None:
    given = data(5) if x is None else x() if callable(x) else x
    model.fit(given, callbacks=callbacks, **{"verbose": 0, "shuffle": False, **fitting})
