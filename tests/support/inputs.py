"""What ``fit`` may be given: inputs of every kind, with what else it is told. Imports TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tests.support import trainings


def arrays(n: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """n inputs and their targets, the same in each call."""
    rng = np.random.default_rng(0)
    return rng.random((n, trainings.FEATURES), np.float32), rng.random((n, 1), np.float32)


def generator(epochs: int = 9) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Batches for so many epochs of five."""
    x, y = arrays()
    for _ in range(epochs):
        yield from ((x[i : i + 2], y[i : i + 2]) for i in range(0, 10, 2))


def batches(keras: Any) -> Any:
    """Keras's own kind of input: Keras 3's PyDataset, Keras 2's Sequence."""

    class Batches(getattr(keras.utils, "PyDataset", keras.utils.Sequence)):
        """See above."""

        def __len__(self) -> int:
            return 5

        def __getitem__(self, i: int) -> tuple[np.ndarray, np.ndarray]:
            x, y = arrays()
            return x[2 * i : 2 * i + 2], y[2 * i : 2 * i + 2]

    return Batches()


def of_unknown_size() -> tf.data.Dataset:
    """Where Keras finds the end, it has counted one step more; Keras 2 knows the size from then on."""
    return trainings.data(3).filter(lambda x, y: True)


# Each with the steps that it makes, on Keras 2 too if that differs.
INPUTS: dict[str, tuple[Any, Callable[[Any], dict[str, Any]]]] = {
    "numpy": (5, lambda _: {"x": arrays()[0], "y": arrays()[1], "batch_size": 2}),
    "shuffled": (5, lambda _: {"x": arrays()[0], "y": arrays()[1], "batch_size": 2, "shuffle": True}),
    "tf.data": (5, lambda _: {"x": trainings.data(5)}),
    "generator": (5, lambda _: {"x": generator, "steps_per_epoch": 5}),
    "ends": (6, lambda _: {"x": lambda: generator(epochs=1)}),
    "unknown": ((12, 10), lambda _: {"x": of_unknown_size(), "epochs": 3}),
    "PyDataset": (5, lambda keras: {"x": lambda: batches(keras)}),
    "remainder": (5, lambda _: {"x": arrays(9)[0], "y": arrays(9)[1], "batch_size": 2}),
    "weights": (
        5,
        lambda _: {"x": arrays()[0], "y": arrays()[1], "sample_weight": np.arange(10.0), "batch_size": 2},
    ),
    "validated": (5, lambda _: {"x": trainings.data(5), "validation_data": trainings.data(2)}),
    "between": (10, lambda _: {"x": trainings.data(5), "validation_data": trainings.data(2), "epochs": 2}),
    "epochs": (9, lambda _: {"x": trainings.data(3), "epochs": 3}),
}
