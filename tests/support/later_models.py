"""Models that are not built when ``fit`` begins, as scripts make them: Keras builds them while it traces their first batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tests.support import kerases
from tests.support.trainings import FEATURES

Wrap = Callable[[Any], Any]


def _alone(optimizer: Any) -> Any:
    return optimizer


def sequential(keras: Any, wrap: Wrap = _alone) -> Any:
    """Without an ``Input``."""
    layers = keras.layers
    model = keras.Sequential([layers.Dense(8, "relu"), layers.BatchNormalization(), layers.Dense(1)])
    model.compile(wrap(keras.optimizers.Adam()), "mse", metrics=["mae"], jit_compile=False)
    return model


def subclass(keras: Any, wrap: Wrap = _alone) -> Any:
    """A subclass whose layers, one of them random, are built by ``call``."""

    class Net(keras.Model):
        """See above."""

        def __init__(self) -> None:
            super().__init__()
            self.hidden, self.out = keras.layers.Dense(8, "relu"), keras.layers.Dense(1, dtype="float32")
            # In Keras 2 the numbers of a seed depend on how often Keras has traced the layer.
            self.noise = keras.layers.Dropout(0.0 if kerases.is_2(keras) else 0.3, seed=5)

        def call(self, x: Any, training: bool = False) -> Any:
            return self.out(self.noise(self.hidden(x), training=training))

    model = Net()
    model.compile(wrap(keras.optimizers.Adam()), "mse", metrics=["mae"], jit_compile=False)
    return model


def vae(keras: Any, wrap: Wrap = _alone) -> Any:
    """Two built networks and a ``train_step``; the model itself is never called, and Keras never calls it built."""
    layers = keras.layers

    class Vae(keras.Model):
        """See above."""

        def __init__(self) -> None:
            super().__init__()
            self.encoder = keras.Sequential([keras.Input((FEATURES,)), layers.Dense(8, "relu"), layers.Dense(4)])
            self.decoder = keras.Sequential([keras.Input((2,)), layers.Dense(8, "relu"), layers.Dense(FEATURES)])
            self.total = keras.metrics.Mean(name="total")

        @property
        def metrics(self) -> list[Any]:
            return [self.total]

        def train_step(self, data: Any) -> dict[str, Any]:
            x, _ = data
            with tf.GradientTape() as tape:
                mean, log = tf.split(self.encoder(x), 2, axis=1)
                z = mean + tf.exp(0.5 * log) * tf.random.stateless_normal(tf.shape(mean), [1, 2])
                divergence = -0.5 * tf.reduce_mean(1 + log - tf.square(mean) - tf.exp(log))
                loss = tf.reduce_mean(tf.square(self.decoder(z) - x)) + divergence
            weights = self.trainable_weights
            self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
            self.total.update_state(loss)
            return {"total": self.total.result()}

    model = Vae()
    model.compile(wrap(keras.optimizers.Adam(1e-2)), jit_compile=False)
    return model


def gan(keras: Any, wrap: Wrap = _alone) -> Any:
    """Two networks that are not built, and two optimizers that are not either; compiled as Keras's own example is."""
    layers = keras.layers

    class Gan(keras.Model):
        """See above."""

        def __init__(self) -> None:
            super().__init__()
            self.discriminator = keras.Sequential([layers.Dense(8, "relu"), layers.Dense(1)])
            self.generator = keras.Sequential([layers.Dense(8, "relu"), layers.Dense(FEATURES)])

        def compile(self, d_optimizer: Any, g_optimizer: Any) -> None:
            super().compile(jit_compile=False)
            self.d_optimizer, self.g_optimizer = d_optimizer, g_optimizer
            self.d_loss = keras.metrics.Mean(name="d_loss")

        def train_step(self, data: Any) -> dict[str, Any]:
            real, _ = data
            noise = real[:, :4]
            with tf.GradientTape() as tape:
                fake = self.generator(noise)
                loss = tf.reduce_mean(self.discriminator(fake)) - tf.reduce_mean(self.discriminator(real))
            weights = self.discriminator.trainable_weights
            self.d_optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
            with tf.GradientTape() as tape:
                g_loss = -tf.reduce_mean(self.discriminator(self.generator(noise)))
            weights = self.generator.trainable_weights
            self.g_optimizer.apply_gradients(zip(tape.gradient(g_loss, weights), weights))
            self.d_loss.update_state(loss)
            return {"d_loss": self.d_loss.result()}

    model = Gan()
    model.compile(wrap(keras.optimizers.Adam(1e-2)), wrap(keras.optimizers.RMSprop(1e-2)))
    return model


MODELS = {model.__name__: model for model in (sequential, subclass, vae, gan)}
# The attribute of the optimizer whose updates are the steps, where ``compile`` is given none.
COUNTING = {"gan": "g_optimizer"}
