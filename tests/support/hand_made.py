"""Models as they are made by hand: the usual kinds, and those that docs/guide/trainings.md lists. Imports TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tests.support import kerases, trainings
from tests.support.trainings import FEATURES

Made = tuple[Any, Any, Any]  # a model that is not compiled, its inputs, its targets


def numbers(*shape: int) -> np.ndarray:
    """Random floats, the same in each call."""
    return np.random.default_rng(len(shape)).random(shape, np.float32)


def words(*shape: int) -> np.ndarray:
    """Random numbers of words, of which there are 50."""
    return np.random.default_rng(0).integers(0, 50, shape)


def u_net(keras: Any) -> Made:
    """Down, up, and across."""
    layers = keras.layers
    inputs = keras.Input((8, 8, 3))
    top = layers.Activation("relu")(layers.BatchNormalization()(layers.Conv2D(4, 3, padding="same")(inputs)))
    low = layers.Conv2D(8, 3, padding="same", activation="relu")(layers.MaxPooling2D()(top))
    up = layers.Conv2DTranspose(4, 2, strides=2)(low)
    out = layers.Conv2D(1, 1)(layers.concatenate([top, up]))
    return keras.Model(inputs, out), numbers(6, 8, 8, 3), numbers(6, 8, 8, 1)


def transformer(keras: Any) -> Made:
    """One block of it, over words."""
    layers = keras.layers
    inputs = keras.Input((5,), dtype="int32")
    x = layers.Embedding(50, 8)(inputs)
    x = layers.LayerNormalization()(x + layers.MultiHeadAttention(2, 4, dropout=0.1)(x, x))
    x = layers.LayerNormalization()(x + layers.Dense(8)(layers.Dense(16, "gelu")(x)))
    return keras.Model(inputs, layers.Dense(1)(layers.GlobalAveragePooling1D()(x))), words(6, 5), numbers(6, 1)


def recurrent(keras: Any) -> Made:
    """LSTM, both ways."""
    layers = keras.layers
    stack = [layers.Bidirectional(layers.LSTM(3)), layers.Dense(1)]
    return keras.Sequential([keras.Input((4, 3)), *stack]), numbers(6, 4, 3), numbers(6, 1)


def siamese(keras: Any) -> Made:
    """One tower for two inputs."""
    layers = keras.layers
    tower = keras.Sequential([keras.Input((6,)), layers.Dense(4, "relu"), layers.BatchNormalization()])
    left, right = keras.Input((6,)), keras.Input((6,))
    out = layers.Dense(1)(layers.subtract([tower(left), tower(right)]))
    return keras.Model([left, right], out), (numbers(6, 6), 1 - numbers(6, 6)), numbers(6, 1)


def two_heads(keras: Any) -> Made:
    """Two outputs, a loss for each."""
    inputs = keras.Input((6,))
    x = keras.layers.Dense(4, "relu")(inputs)
    return (
        keras.Model(inputs, [keras.layers.Dense(1)(x), keras.layers.Dense(2)(x)]),
        numbers(6, 6),
        (numbers(6, 1), numbers(6, 2)),
    )


def autoencoder(keras: Any) -> Made:
    """Variational, with a loss of its own from within a layer."""

    class Sample(keras.layers.Layer):
        """Draws around the mean, and holds it near zero."""

        def __init__(self) -> None:
            super().__init__()
            self.noise = keras.layers.GaussianNoise(1.0, seed=3)

        def call(self, mean: Any, training: Any = None) -> Any:
            self.add_loss(1e-3 * tf.reduce_mean(tf.square(mean)))
            return self.noise(mean, training=training)

    layers = keras.layers
    inputs = keras.Input((6,))
    out = layers.Dense(6)(Sample()(layers.Dense(2)(layers.Dense(8, "relu")(inputs))))
    return keras.Model(inputs, out), numbers(6, 6), numbers(6, 6)


KINDS = {kind.__name__: kind for kind in (u_net, transformer, recurrent, siamese, two_heads, autoencoder)}


def of_kind(keras: Any, kind: str) -> Any:
    """A compiled model of this kind."""
    model, _, y = KINDS[kind](keras)
    model.compile("adam", ["mse"] * len(y) if isinstance(y, tuple) else "mse", jit_compile=False)
    # Keras 2 counts a layer's own seed up with each tracing, and traces twice where the optimizer is not built yet.
    model.optimizer.build(model.trainable_variables)
    return model


def batches_of(keras: Any, kind: str) -> tf.data.Dataset:
    """Three batches for a model of this kind."""
    _, x, y = KINDS[kind](keras)
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(2)


def compiled(keras: Any, model: Any, optimizer: Any = "adam", loss: str = "mse", **compiling: Any) -> Any:
    """The model, compiled."""
    model.compile(optimizer, loss, **{"jit_compile": False, **compiling})
    return model


def shared(keras: Any) -> Any:
    """A layer that is used twice."""
    inputs = keras.Input((FEATURES,))
    layer = keras.layers.Dense(FEATURES, "relu")
    return compiled(keras, keras.Model(inputs, keras.layers.Dense(1)(layer(layer(inputs)))))


def tied(keras: Any) -> Any:
    """A layer that keeps the variable of another."""

    class Tied(keras.layers.Layer):
        """The way back, by the same kernel."""

        def __init__(self, of: Any) -> None:
            super().__init__()
            self.of = of

        def build(self, shape: Any) -> None:
            self.kernel = self.of.kernel
            self.own = self.add_weight(shape=(FEATURES,), name="own")

        def call(self, x: Any) -> Any:
            return tf.matmul(x, self.kernel, transpose_b=True) + self.own

    first = keras.layers.Dense(8, use_bias=False)
    inputs = keras.Input((FEATURES,))
    return compiled(keras, keras.Model(inputs, keras.layers.Dense(1)(Tied(first)(first(inputs)))))


def nested(keras: Any) -> Any:
    """A model within a model."""
    inner = keras.Sequential([keras.Input((FEATURES,)), keras.layers.Dense(4), keras.layers.BatchNormalization()])
    return compiled(keras, keras.Sequential([keras.Input((FEATURES,)), inner, keras.layers.Dense(1)]))


def frozen(keras: Any) -> Any:
    """The first layer is not trained."""
    model = trainings.dense(keras)
    model.layers[0].trainable = False
    return compiled(keras, model)


def classifier(keras: Any) -> Any:
    """Of three classes."""
    model = keras.Sequential([keras.Input((FEATURES,)), keras.layers.Dense(3, "softmax")])
    return compiled(keras, model, loss="sparse_categorical_crossentropy")


def scalars(keras: Any) -> Any:
    """Many variables, each of them a trained scalar."""

    class Scalars(keras.layers.Layer):
        """See above."""

        def build(self, _: Any) -> None:
            self.parts = [self.add_weight(shape=(), name=f"part_{n}", initializer="ones") for n in range(40)]

        def call(self, x: Any) -> Any:
            return x * tf.reduce_mean(tf.stack([tf.convert_to_tensor(part) for part in self.parts]))

    return compiled(keras, keras.Sequential([keras.Input((FEATURES,)), Scalars(), keras.layers.Dense(1)]))


def large_first(keras: Any) -> Any:
    """Nearly all of it is the first layer, which is updated last."""
    return trainings.dense(keras, keras.optimizers.SGD(0.1, momentum=0.9), units=40_000)


def with_metrics(keras: Any) -> Any:
    """Metrics with state."""
    metrics = ["mae", keras.metrics.MeanSquaredError(), keras.metrics.RootMeanSquaredError(name="rmse")]
    return trainings.dense(keras, metrics=metrics)


def lora(keras: Any) -> Any:
    """A layer that Keras saves with its update added to its kernel (Keras 3)."""
    model = trainings.dense(keras)
    model.layers[0].enable_lora(2)
    return compiled(keras, model)


def named(keras: Any, names: Sequence[str]) -> Any:
    """A layer that saves the variables of these names, under names of its own."""

    class Named(keras.layers.Dense):
        """See above."""

        def save_own_variables(self, store: Any) -> None:
            for name in names:
                store[f"the_{name}"] = getattr(self, name)

        def load_own_variables(self, store: Any) -> None:
            for name in names:
                getattr(self, name).assign(store[f"the_{name}"])

    return compiled(keras, keras.Sequential([keras.Input((FEATURES,)), Named(4), keras.layers.Dense(1)]))


SHAPES: list[tuple[int, ...]] = [(), (0,), (3,), (2, 0, 3), (70_000,)]
DTYPES = ("float64", "float32", "float16", "bfloat16", "int8", "int64", "uint8", "bool")


def of_every_dtype(keras: Any) -> Any:
    """A model whose first layer holds variables of every dtype and shape, which are zeros and stay as they are."""

    class Holder(keras.layers.Layer):
        """See above."""

        def build(self, _: Any) -> None:
            options = {"initializer": "zeros", "trainable": False}
            # Keras 2 itself can't save bfloat16 variables.
            dtypes = [dtype for dtype in DTYPES if dtype != "bfloat16" or not kerases.is_2(keras)]
            self.held = [
                self.add_weight(shape=shape, dtype=dtype, name=f"{dtype}_{n}", **options)
                for dtype in dtypes
                for n, shape in enumerate(SHAPES)
            ]

        def call(self, x: Any) -> Any:
            return x

    model = compiled(keras, keras.Sequential([keras.Input((FEATURES,)), Holder(), keras.layers.Dense(1)]))
    model.optimizer.build(model.trainable_variables)
    return model


def fill(model: Any) -> list[np.ndarray]:
    """Gives the variables that a model ``of_every_dtype`` holds other values, the same in each call. Returns them."""
    rng, held = np.random.default_rng(0), model.layers[0].held
    values = [rng.integers(0, 2, tuple(variable.shape)) for variable in held]
    for variable, value in zip(held, values, strict=True):
        variable.assign(value)
    return values


def gan(keras: Any, builds: bool = True) -> Any:
    """Two networks, two optimizers; the critic is updated twice in each step. Compiled without an optimizer of its own."""

    class Gan(keras.Model):
        """See above."""

        def __init__(self) -> None:
            super().__init__()
            layers = keras.layers
            self.generator = keras.Sequential([keras.Input((4,)), layers.Dense(8, "relu"), layers.Dense(FEATURES)])
            self.critic = keras.Sequential([keras.Input((FEATURES,)), layers.Dense(8, "relu"), layers.Dense(1)])
            self.critic_optimizer = keras.optimizers.Adam(1e-2)
            self.generator_optimizer = keras.optimizers.RMSprop(1e-2)
            if builds:
                self.critic_optimizer.build(self.critic.trainable_variables)
                self.generator_optimizer.build(self.generator.trainable_variables)
            self.built = True

        def call(self, x: Any) -> Any:
            return self.critic(self.generator(x))

        def train_step(self, batch: Any) -> dict[str, Any]:
            real, _ = batch
            noise = real[:, :4]
            for _ in range(2):
                with tf.GradientTape() as tape:
                    loss = tf.reduce_mean(self.critic(self.generator(noise))) - tf.reduce_mean(self.critic(real))
                weights = self.critic.trainable_variables
                self.critic_optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
            with tf.GradientTape() as tape:
                loss = -tf.reduce_mean(self(noise))
            weights = self.generator.trainable_variables
            self.generator_optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
            for weight in self.critic.trainable_variables:
                weight.assign(tf.clip_by_value(weight, -0.1, 0.1))
            return {"loss": loss}

    model = Gan()
    model.compile(jit_compile=False)
    return model
