"""A Keras model with given weights and next to no computation. Imports TensorFlow and Keras.

A step of it still writes every weight, through ``model.fit`` and the optimizer's ``apply``, one gradient per weight, the last
layer's first: what a capture in the graph meets in a real training, with nothing else to hide its cost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from deepfreeze.frameworks.tensorflow.variables import tf_variable


class Holder(keras.layers.Layer):
    """Holds a kernel and a bias; its output depends on one element of each. Their gradients are constants that lie ready:
    making up true ones of this size would cost more than the update itself."""

    def __init__(self, kernel: tuple[int, ...], **options: Any) -> None:
        super().__init__(**options)
        self._shape = kernel

    def build(self, input_shape: Any) -> None:
        """Makes the weights, and the gradients."""
        # The values don't matter: zeros are made fastest.
        self.kernel = self.add_weight(name="kernel", shape=self._shape, initializer="zeros")
        self.bias = self.add_weight(name="bias", shape=self._shape[-1:], initializer="zeros")
        self._probes = [_probe(self._shape), _probe(self._shape[-1:])]

    def call(self, x: Any) -> Any:
        """``x`` and the two elements."""
        for weight, probe in zip((self.kernel, self.bias), self._probes, strict=True):
            x = x + probe(tf.convert_to_tensor(weight.value))
        return x


class Descent(keras.optimizers.SGD):
    """SGD whose update is TensorFlow's one fused op, in place. Keras's own first writes gradient times rate to fresh memory."""

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """See ``keras.optimizers.Optimizer.update_step``."""
        rate = tf.cast(learning_rate, variable.dtype)
        tf.raw_ops.ResourceApplyGradientDescent(var=tf_variable(variable).handle, alpha=rate, delta=gradient)


def network(weights: Sequence[tuple[str, tuple[int, ...], str]]) -> keras.Model:
    """The model with these weights: ("layer/kernel", shape, dtype) and ("layer/bias", shape, dtype) in turns."""
    layers = [Holder(shape, name=path.removesuffix("/kernel")) for path, shape, _ in weights[::2]]
    return keras.Sequential([keras.Input((1,)), *layers], name="light")


def optimizer(**options: Any) -> keras.optimizers.Optimizer:
    """The optimizer to compile it with. ``options``: of Keras's SGD."""
    return Descent(1e-3, **options)


def _probe(shape: tuple[int, ...]) -> Callable[[tf.Tensor], tf.Tensor]:
    """A function of a weight: its first element, with a gradient of ones."""
    ones = tf.ones(shape)

    @tf.custom_gradient
    def probe(weight: tf.Tensor) -> Any:
        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            # Behind the gradient from above: in back-propagation's order, and after the forward pass has let go of the weight,
            # or the update would have to copy it first.
            with tf.control_dependencies([upstream]):
                return tf.identity(ones)

        return tf.reshape(weight, [-1])[0], gradient

    return probe
