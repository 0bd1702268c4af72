"""Models in the shape of other people's, each with variables that the model does not list or that Keras leaves out of its files. Each
function makes a compiled model with new random weights; ``everything`` gives all values on which its training goes on."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import tensorflow as tf

from deepfreeze.frameworks.tensorflow.variables import tf_variable
from deepfreeze.state import keras_objects
from tests.support import kerases

FEATURES = 6


class Box:
    """An object of the user's, of which Keras knows nothing."""


def _plain(optimizer: Any) -> Any:
    return optimizer


def data(first: int, last: int, rank: int = 0) -> tf.data.Dataset:
    """(x, y) for the batches ``first`` to ``last`` (exclusive) of a rank."""
    rng = np.random.default_rng(rank)
    x, y = rng.random((40, FEATURES), np.float32), rng.random((40, 1), np.float32)
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(2).skip(first).take(last - first)


_boxes: weakref.WeakKeyDictionary[Any, Box] = weakref.WeakKeyDictionary()  # of ``nowhere``


def own_list(keras: Any, averaging: Any = _plain) -> Any:
    """A layer that keeps its sublayers under a name that Keras's own layers use: they are listed, and in no file (keras#20260)."""

    class Stack(keras.layers.Layer):
        """Three layers, of which ``save_weights`` saves none."""

        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            if kerases.is_2(keras):
                self.parts = [[keras.layers.Dense(4, "relu"), keras.layers.Dense(4, "relu")]]  # in a list in a list
            else:
                self._layers = [keras.layers.Dense(4, "relu"), keras.layers.Dense(4, "relu")]

        def stacked(self) -> Any:
            """The layers. A property would be an attribute, whose layers Keras saves."""
            return self.parts[0] if kerases.is_2(keras) else self._layers

        def build(self, shape: Any) -> None:
            """Builds the layers."""
            for layer in self.stacked():
                layer.build(shape)
                shape = (*shape[:-1], 4)
            self.built = True

        def call(self, x: Any) -> Any:
            """One after the other."""
            for layer in self.stacked():
                x = layer(x)
            return x

    model = keras.Sequential([keras.Input((FEATURES,)), Stack(), keras.layers.Dense(1)])
    model.compile(averaging(keras.optimizers.Adam()), "mse", jit_compile=False)
    return model


def _stepping(keras: Any, before: Any = None, after: Any = None, trained: Any = None) -> Any:
    """A class of models with a ``train_step`` of their own. ``trained(model)``: what is trained besides the model's list; ``before(model,
    x)``: replaces the batch; ``after(model)``: called behind the update."""

    class Own(keras.Model):
        """See above."""

        def train_step(self, data: Any) -> Any:
            """One update."""
            x, y = data
            if before is not None:
                x = before(self, x)
            variables = [*self.trainable_variables, *(trained(self) if trained else [])]
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((self(x, training=True) - tf.cast(y, tf.float32)) ** 2)
            if kerases.is_2(keras):
                self.optimizer.minimize(loss, variables, tape=tape)  # in which Horovod's optimizer averages
            else:
                self.optimizer.apply(tape.gradient(loss, variables), variables)
            if after is not None:
                after(self)
            return {"loss": loss}

    return Own


def _functional(keras: Any, cls: Any, hidden: Any = None) -> Any:
    inputs = keras.Input((FEATURES,))
    x = keras.layers.Dense(5, "relu")(inputs)
    if hidden is not None:
        x = hidden(x)
    return cls(inputs, keras.layers.Dense(1)(x))


def hidden_weights(keras: Any, averaging: Any = _plain) -> Any:
    """Weights in an object of the user's, which a ``train_step`` trains with an optimizer that is built for them (keras-hub#2709)."""
    box = Box()

    class Scaled(keras.layers.Layer):
        """Multiplies by weights that it does not list."""

        def build(self, shape: Any) -> None:
            """Makes the weights."""
            make = tf.Variable if kerases.is_2(keras) else keras.Variable
            box.factor = make(np.random.rand(5).astype("float32"), name="factor")
            box.shift = make(np.random.rand(5).astype("float32"), name="shift")
            self.built = True

        def call(self, x: Any) -> Any:
            """Scales and shifts."""
            return x * box.factor + box.shift

    model = _functional(keras, _stepping(keras, trained=lambda model: [box.factor, box.shift]), Scaled(name="hidden"))
    model.box = box
    model.compile(averaging(keras.optimizers.Adam()), "mse", jit_compile=False)
    model.optimizer.build([*model.trainable_variables, box.factor, box.shift])
    return model


def nowhere(keras: Any, averaging: Any = _plain, trains: bool = True) -> Any:
    """Weights that nothing leads to but the functions that use them. The optimizer is built by the first step. ``trains``: the step trains
    them."""
    hidden = Box()

    class Gain(keras.layers.Layer):
        """Multiplies by a weight that it does not list."""

        def build(self, shape: Any) -> None:
            """Makes the weight."""
            make = tf.Variable if kerases.is_2(keras) else keras.Variable
            hidden.gain = make(np.random.rand(5).astype("float32"), name="gain")
            self.built = True

        def call(self, x: Any) -> Any:
            """Scales."""
            return x * hidden.gain

    model = _functional(
        keras, _stepping(keras, trained=lambda model: [hidden.gain] if trains else []), Gain(name="hidden")
    )
    _boxes[model] = hidden
    model.compile(averaging(keras.optimizers.Adam()), "mse", jit_compile=False)
    return model


def average(keras: Any, averaging: Any = _plain) -> Any:
    """A ``train_step`` that keeps averages of the weights, and counts, in variables of a plain object; it scales the batch by the count."""

    def after(model: Any) -> None:
        for mean, weight in zip(model.box.means, model.trainable_variables, strict=True):
            mean.assign(0.5 * mean + 0.5 * tf.convert_to_tensor(weight))
        model.box.seen.assign_add(1)
        tf.cond(model.box.seen % 2 == 0, lambda: model.box.even.assign_add(1), lambda: model.box.even.read_value())

    def before(model: Any, x: Any) -> Any:
        return x + tf.cast(model.box.seen, tf.float32) * model.box.fixed + tf.reduce_sum(model.box.means[0])

    model = _functional(keras, _stepping(keras, before, after))
    model.box = Box()
    model.box.means = [tf.Variable(tf.zeros(weight.shape), trainable=False) for weight in model.trainable_variables]
    model.box.seen = tf.Variable(0, trainable=False, dtype=tf.int32, name="seen")
    model.box.even = tf.Variable(0, trainable=False, dtype=tf.int64, name="even")
    model.box.fixed = tf.Variable(0.01, trainable=False, name="fixed")  # read, and never written
    model.compile(averaging(keras.optimizers.Adam()), "mse", jit_compile=False)
    return model


def generator(keras: Any, averaging: Any = _plain) -> Any:
    """A ``train_step`` that adds noise from a ``tf.random.Generator`` of its own."""
    model = _functional(
        keras, _stepping(keras, lambda model, x: x + model.box.generator.normal(tf.shape(x), dtype=x.dtype))
    )
    model.box = Box()
    model.box.generator = tf.random.Generator.from_seed(int(np.random.randint(1000)))
    model.compile(averaging(keras.optimizers.Adam()), "mse", jit_compile=False)
    return model


def box_of(model: Any) -> Box | None:
    """The object that holds what the model does not list; None for ``own_list``."""
    return _boxes.get(model) or getattr(model, "box", None)


def everything(model: Any) -> dict[str, np.ndarray]:
    """The values of the model's and the optimizer's variables, and of those that neither lists."""
    found = {f"weights[{n}]": tf_variable(one).numpy() for n, one in enumerate(model.weights)}
    variables = keras_objects.optimizer_variables(model.optimizer)
    found |= {f"optimizer[{n}]": tf_variable(one).numpy() for n, one in enumerate(variables)}
    box = box_of(model)
    for name, thing in vars(box).items() if box is not None else ():
        things = thing if isinstance(thing, list) else [getattr(thing, "state", thing)]
        found |= {f"box.{name}[{n}]": tf_variable(one).numpy() for n, one in enumerate(things)}
    return found


MODELS = {one.__name__: one for one in (own_list, hidden_weights, nowhere, average, generator)}
