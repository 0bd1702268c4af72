"""Every optimizer that the Kerases ship, what they may be told, and updates that a loss scale skips. Imports TensorFlow."""

from __future__ import annotations

import contextlib
import importlib
import inspect
from collections.abc import Callable, Collection, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tests.support import kerases, trainings

WRAPPERS = ("LossScaleOptimizer", "MultiOptimizer")  # of others: they have tests of their own

# What these compute depends on whether they are built before the training is traced, as DeepFreeze has to: Keras 2's Nadam counts its
# tracings, and where ScheduleFreeAdamW is built while it is traced, its first values are set in the graph.
BUILT_BEFORE = ("Nadam", "ScheduleFreeAdamW")


def every_class(keras: Any) -> list[str]:
    """Every optimizer class that a Keras ships, by name."""
    base = keras.optimizers.Optimizer
    found = {
        name: cls for name, cls in vars(keras.optimizers).items() if inspect.isclass(cls) and issubclass(cls, base)
    }
    return [name for name, cls in found.items() if cls is not base and name not in WRAPPERS]


#: (package, class): every class of every Keras that is installed here
CASES = [(api, name) for api in kerases.NAMES for name in every_class(importlib.import_module(api))]


def left_out(keras: Any, name: str) -> list[str]:
    """The names of the variables that the optimizer class ``name`` trains with and stock Keras leaves out of its files. Keras 2's Nadam
    multiplies its rates up in a variable that it does not list: training goes on right only with it."""
    return ["Variable"] if kerases.is_2(keras) and name == "Nadam" else []


def trained_by(keras: Any, name: str) -> Any:
    """A model with an optimizer of this class."""
    model = trainings.dense(keras, getattr(keras.optimizers, name)())
    if name in BUILT_BEFORE:
        model.optimizer.build(model.trainable_variables)
    return model


def several(keras: Any) -> Any:
    """A model whose offsets have an optimizer of their own; None if this Keras has no such optimizer."""
    optimizers = keras.optimizers
    if not hasattr(optimizers, "MultiOptimizer"):
        return None
    mapped = optimizers.OptimizerMap(optimizers.Adam(), {".*bias": optimizers.SGD(0.1, momentum=0.9)})
    return trainings.dense(keras, optimizers.MultiOptimizer(mapped))


TWISTS = {
    "momentum": lambda keras: keras.optimizers.SGD(0.01, momentum=0.9, nesterov=True),
    "clipnorm": lambda keras: keras.optimizers.Adam(clipnorm=0.1),
    "global_clipnorm": lambda keras: keras.optimizers.Adam(global_clipnorm=0.1),
    "clipvalue": lambda keras: keras.optimizers.SGD(clipvalue=0.01),
    "decay": lambda keras: keras.optimizers.AdamW(weight_decay=0.1),
    "ema": lambda keras: keras.optimizers.Adam(use_ema=True),
    "ema_overwrites": lambda keras: keras.optimizers.Adam(use_ema=True, ema_overwrite_frequency=2),
    "schedule": lambda keras: keras.optimizers.SGD(keras.optimizers.schedules.CosineDecay(0.1, 10)),
    "amsgrad": lambda keras: keras.optimizers.Adam(amsgrad=True),
}


def constrained(keras: Any) -> Any:
    """A model whose weights are held small after each update."""
    norm = keras.constraints.MaxNorm(0.1)
    layers = [keras.layers.Dense(8, kernel_constraint=norm), keras.layers.Dense(1, kernel_constraint=norm)]
    model = keras.Sequential([keras.Input((trainings.FEATURES,)), *layers])
    model.compile(keras.optimizers.SGD(1.0), "mse", jit_compile=False)
    return model


@contextlib.contextmanager
def precision(keras: Any) -> Iterator[Callable[[str], None]]:
    """A function that sets Keras's global policy, until the block's end."""
    before = keras.mixed_precision.global_policy() if kerases.is_2(keras) else keras.config.dtype_policy()
    try:
        yield keras.mixed_precision.set_global_policy
    finally:
        keras.mixed_precision.set_global_policy(before)


def overflowing(batches: int, skipped: Collection[int]) -> tf.data.Dataset:
    """As many batches of numbers; those ``skipped`` have an infinity, after which the loss scale skips the update."""
    x = np.random.default_rng(0).random((2 * batches, trainings.FEATURES), np.float32)
    for batch in skipped:
        x[2 * batch] = np.inf
    return tf.data.Dataset.from_tensor_slices((x, np.ones((2 * batches, 1), np.float32))).batch(2)


def scaled(keras: Any, **compiling: Any) -> Any:
    """Under mixed_float16: ``compile`` puts a loss scale around the optimizer."""
    model = trainings.dense(
        keras, loss_weights=[1e-3], **compiling
    )  # or the first gradients would overflow by themselves
    assert type(model.optimizer).__name__.startswith("LossScaleOptimizer")
    return model
