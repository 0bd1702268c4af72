"""Checkpointing that comes with TensorFlow and Keras, and the model over which DeepFreeze is compared with it."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from benchmarks.light import Descent
from benchmarks.peers_child import RATE, Channel, Peer, serve, thin

_ASYNC = tf.train.CheckpointOptions(enable_async=True)


class Tensors(keras.layers.Layer):
    """The weights that one layer of the real network has."""

    def __init__(self, weights: Mapping[str, np.ndarray], **options: Any) -> None:
        super().__init__(**options)
        for name, value in weights.items():
            self.add_weight(name=name, shape=value.shape, dtype=value.dtype, initializer="zeros").assign(value)
        self.built = True

    def call(self, x: Any) -> Any:
        """``x``: there is no computation."""
        return x


class Model(keras.Sequential):
    """Layers with weights and gradients that lie ready: a step of it is the update and nothing else."""

    def train_step(self, data: Any) -> dict[str, Any]:
        """See ``keras.Model.train_step``."""
        self.optimizer.apply([tf.identity(slope) for slope in self.slopes], self.trainable_variables)
        return {"loss": tf.constant(0.0)}


def model(arrays: Mapping[str, np.ndarray]) -> Model:
    """The compiled model that has these weights ("layer/weight" by name), every one of them trained."""
    layers: dict[str, dict[str, np.ndarray]] = {}
    for path, array in arrays.items():
        layer, weight = path.rsplit("/", 1)
        layers.setdefault(layer, {})[weight] = array
    made = Model([keras.Input((1,)), *(Tensors(weights, name=name) for name, weights in layers.items())])
    # Not tracked by Keras, or they would be saved too.
    object.__setattr__(
        made, "slopes", [tf.ones(variable.shape, variable.dtype) for variable in made.trainable_variables]
    )
    made.compile(Descent(RATE), jit_compile=False)
    return made


def variables(of: Model) -> list[tf.Variable]:
    """TensorFlow's variables of the model."""
    return [variable.value for variable in of.variables]


def sample(of: Model) -> list[np.ndarray]:
    """Some values of each, without a reference to the rest: that would make the next update copy it."""
    return [thin(tf.reshape(variable, [-1])).numpy() for variable in variables(of)]


class _Variables(Peer):
    """What the approaches over this model share."""

    def __init__(self, over: Model) -> None:
        self._model = over
        self._step = tf.function(lambda: over.train_step(None))

    def update(self) -> None:
        """See Peer."""
        self._step()

    def sample(self) -> list[np.ndarray]:
        """See Peer."""
        return sample(self._model)


class SaveWeights(_Variables):
    """Keras's own."""

    name, fsync = "Keras save_weights", "no"

    def save(self, folder: Path) -> None:
        """See Peer."""
        self._model.save_weights(folder / "model.weights.h5")

    def restore(self, folder: Path) -> None:
        """See Peer."""
        self._model.load_weights(folder / "model.weights.h5")


class TrainCheckpoint(_Variables):
    """tf.train.Checkpoint as it is."""

    name, fsync = "tf.train.Checkpoint", "no"
    options: tf.train.CheckpointOptions | None = None

    def __init__(self, over: Model) -> None:
        super().__init__(over)
        self._checkpoint = tf.train.Checkpoint(tensors=variables(over))
        self._path = ""

    def save(self, folder: Path) -> None:
        """See Peer."""
        self._path = self._checkpoint.save(str(folder / "state"), options=self.options)

    def restore(self, folder: Path) -> None:
        """See Peer."""
        self._checkpoint.restore(self._path, options=self.options).assert_consumed()


class TrainCheckpointAsync(TrainCheckpoint):
    """With the option to write in the background; it holds on to the variables' memory, and the update then copies it."""

    name, background, options = "tf.train.Checkpoint async", True, _ASYNC

    def wait(self) -> None:
        """See Peer."""
        self._checkpoint.sync()


def start(side: str, arrays: dict[str, np.ndarray], channel: Channel, folder: Path) -> None:
    """Serves them all, over one model."""
    over = model(arrays)
    arrays.clear()
    peers = [SaveWeights(over), TrainCheckpoint(over), TrainCheckpointAsync(over)]
    packages = ("tensorflow-cpu", "keras", "h5py")
    serve(
        {peer.name: peer for peer in peers},
        {name: importlib.metadata.version(name) for name in packages},
        channel,
        folder,
    )
