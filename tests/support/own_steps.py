"""Models with a ``train_step`` of their own, in the shapes that other people's programs have. Their layers are built; no optimizer is."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tests.support import kerases
from tests.support.trainings import FEATURES

Wrap = Callable[[Any], Any]


def _alone(optimizer: Any) -> Any:
    return optimizer


def _net(keras: Any, units: int = 8, outputs: int = 1, inputs: int = FEATURES) -> Any:
    layers = keras.layers
    return keras.Sequential([keras.Input((inputs,)), layers.Dense(units, "relu"), layers.Dense(outputs)])


def distiller(
    keras: Any,
    wrap: Wrap = _alone,
    trainable: bool = True,
    optimizer: Any = None,
    average: Any = None,
    decorated: bool = False,
    **compiling: Any,
) -> Any:
    """A student and its teacher; the optimizer trains the student alone. ``trainable``: the teacher counts as trainable all the same;
    ``average``: what the step does to each gradient first; ``decorated``: the step is a ``tf.function``, which keeps what it traced."""

    class Distiller(keras.Model):
        """See above."""

        def __init__(self) -> None:
            super().__init__()
            self.teacher = _net(keras, 16)
            self.teacher.trainable = trainable
            self.student = _net(keras)

        def call(self, x: Any) -> Any:
            return self.student(x)

        def train_step(self, data: Any) -> dict[str, Any]:
            x, y = data
            soft = self.teacher(x, training=False)
            with tf.GradientTape() as tape:
                out = self.student(x, training=True)
                loss = tf.reduce_mean((tf.cast(out, "float32") - y) ** 2 + (out - soft) ** 2)
                scales = hasattr(self.optimizer, "get_scaled_loss")  # a LossScaleOptimizer of Keras 2
                scaled = self.optimizer.get_scaled_loss(loss) if scales else loss
                if hasattr(self.optimizer, "scale_loss"):
                    scaled = self.optimizer.scale_loss(loss)
            variables = self.student.trainable_variables
            gradients = tape.gradient(scaled, variables)
            if scales:
                gradients = self.optimizer.get_unscaled_gradients(gradients)
            if average is not None:
                gradients = [average(gradient) for gradient in gradients]
            self.optimizer.apply_gradients(zip(gradients, variables))
            return {"distilled": loss}

    if decorated:
        Distiller.train_step = tf.function(Distiller.train_step)
    model = Distiller()
    model.build((None, FEATURES))
    model.compile(wrap(optimizer or keras.optimizers.Adam(1e-2)), **{"jit_compile": False, **compiling})
    return model


def frozen(keras: Any, wrap: Wrap = _alone) -> Any:
    """A distiller whose teacher is frozen."""
    return distiller(keras, wrap, trainable=False)


def wider(keras: Any, wrap: Wrap = _alone, here: bool = False, eager: bool = False) -> Any:
    """A model whose step trains two variables that the model does not list: they are in an object of the user's. ``here``: the step can't
    be traced in another thread; ``eager``: it runs eagerly, and looks at numbers."""
    weights = [tf.Variable(tf.ones([FEATURES]), name="scale"), tf.Variable(0.0, name="shift")]
    if not kerases.is_2(keras):
        weights = [keras.Variable(tf.convert_to_tensor(one), name=one.name.split(":")[0]) for one in weights]

    class Holder:
        """No layer, so Keras does not look into it."""

        def __init__(self) -> None:
            self.weights = weights

    class Wider(keras.Model):
        """See above."""

        def __init__(self) -> None:
            super().__init__()
            self.net, self.holder = _net(keras), Holder()

        def call(self, x: Any) -> Any:
            return self.net(x)

        def train_step(self, data: Any) -> dict[str, Any]:
            assert not here or threading.current_thread() is threading.main_thread(), "not here"
            x, y = data
            scale, shift = self.holder.weights
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((self.net(x * scale) + shift - y) ** 2)
            assert not eager or float(loss.numpy()) >= 0
            variables = [*self.net.trainable_variables, scale, shift]
            self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
            return {"wide": loss}

    model = Wider()
    model.build((None, FEATURES))
    model.compile(wrap(keras.optimizers.Adam(1e-2)), jit_compile=False, run_eagerly=eager)
    return model


def recipe(keras: Any, wrap: Wrap = _alone) -> Any:
    """Keras 3's recipe of distillation: ``compute_loss`` is overridden, and Keras's own step trains the model's list."""

    class Distiller(keras.Model):
        """See above."""

        def __init__(self) -> None:
            super().__init__()
            self.teacher, self.student = _net(keras, 16), _net(keras)

        def call(self, x: Any) -> Any:
            return self.student(x)

        def compute_loss(self, x: Any = None, y: Any = None, y_pred: Any = None, *_: Any, **__: Any) -> Any:
            return tf.reduce_mean((y_pred - y) ** 2 + (y_pred - self.teacher(x, training=False)) ** 2)

    model = Distiller()
    model.build((None, FEATURES))
    model.compile(wrap(keras.optimizers.Adam(1e-2)), jit_compile=False)
    return model


def decorated(keras: Any, wrap: Wrap = _alone) -> Any:
    """A distiller whose step is a ``tf.function``."""
    return distiller(keras, wrap, decorated=True)


def accumulating(keras: Any, wrap: Wrap = _alone) -> Any:
    """A distiller whose optimizer sums the gradients of two batches (Keras 3)."""
    return distiller(keras, wrap, optimizer=keras.optimizers.Adam(1e-2, gradient_accumulation_steps=2))


def scaled(keras: Any, wrap: Wrap = _alone) -> Any:
    """A distiller whose optimizer scales the loss."""
    place = keras.mixed_precision if kerases.is_2(keras) else keras.optimizers
    return distiller(keras, wrap, optimizer=place.LossScaleOptimizer(keras.optimizers.Adam(1e-2)))


def gan(keras: Any, wrap: Wrap = _alone, kept: str = "attributes", builds: bool = False) -> Any:
    """A GAN: compiled with Keras's default optimizer, which it never applies; its own two are ``kept`` as "attributes", or in a "list", a
    "dict", a "private" attribute, or a "nested" list. ``builds``: they are built."""
    critic_optimizer, generator_optimizer = wrap(keras.optimizers.Adam(1e-2)), wrap(keras.optimizers.Adam(2e-2))

    class Gan(keras.Model):
        """See above."""

        def __init__(self) -> None:
            super().__init__()
            self.critic, self.generator = _net(keras), _net(keras, outputs=FEATURES, inputs=4)

        def compile(self, critic: Any, generator: Any) -> None:
            super().compile(jit_compile=False)
            if kept == "attributes":
                self.critic_optimizer, self.generator_optimizer = critic, generator
            elif kept == "list":
                self.optimizers = [critic, generator]
            elif kept == "dict":
                self.optimizers = {"critic": critic, "generator": generator}
            elif kept == "private":
                self._critic_optimizer, self._generator_optimizer = critic, generator
            else:
                self._opts = {"all": [critic, (generator,)]}

        def train_step(self, data: Any) -> dict[str, Any]:
            real, _ = data
            noise = real[:, :4]
            with tf.GradientTape() as tape:
                fake = self.generator(noise)
                loss = tf.reduce_mean(self.critic(fake)) - tf.reduce_mean(self.critic(real))
            variables = self.critic.trainable_variables
            critic_optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
            with tf.GradientTape() as tape:
                g_loss = -tf.reduce_mean(self.critic(self.generator(noise)))
            variables = self.generator.trainable_variables
            generator_optimizer.apply_gradients(zip(tape.gradient(g_loss, variables), variables))
            return {"d_loss": loss}

    model = Gan()
    model.compile(critic_optimizer, generator_optimizer)
    if builds:
        critic_optimizer.build(model.critic.trainable_variables)
        generator_optimizer.build(model.generator.trainable_variables)
    vars(model)["counting"] = lambda: generator_optimizer  # not an optimizer, so nobody finds a second one
    return model


def in_list(keras: Any, wrap: Wrap = _alone) -> Any:
    """A GAN with its optimizers in a list."""
    return gan(keras, wrap, "list")


def in_dict(keras: Any, wrap: Wrap = _alone) -> Any:
    """A GAN with its optimizers in a dict."""
    return gan(keras, wrap, "dict")


def in_private(keras: Any, wrap: Wrap = _alone) -> Any:
    """A GAN with its optimizers in private attributes."""
    return gan(keras, wrap, "private")


def counting(model: Any) -> dict[str, Any]:
    """The options of ``Checkpoint`` for a model of this module."""
    return {"optimizer": model.counting()} if hasattr(model, "counting") else {}


DISTILLERS = {one.__name__: one for one in (distiller, frozen, recipe, decorated, accumulating, scaled)}
GANS = {one.__name__: one for one in (gan, in_list, in_dict, in_private)}
