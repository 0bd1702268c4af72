"""A model that trains as JAX does: each step takes the state out of Keras's variables, and hands a new one on to the next step. Between two
steps the variables are empty. Those who read them first have the state put back, as new objects."""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf


class Empty:
    """The value of a variable whose state the training has. Nobody may read it."""

    def __getattr__(self, name):
        raise AssertionError(f"{name} of a variable that is not settled")

    def __array__(self, *args, **kwargs):
        raise AssertionError("the value of a variable that is not settled")


class ToyModel(keras.Sequential):
    """Linear regression by gradient descent with momentum, computed by numpy. Keras's own ``fit`` calls ``train_step``."""

    state = None  # the values of ``_mine``, while the variables are empty

    def _mine(self):
        return [*self.trainable_variables, *self.optimizer.variables]

    def train_step(self, data):
        x, y = (np.asarray(one) for one in data)
        values = [one.numpy() for one in self._mine()] if self.state is None else self.state
        kernel, bias, count, rate, *momenta = values
        error = x @ kernel + bias - y
        gradients = 2 * x.T @ error / error.size, 2 * error.sum(0) / error.size
        momenta = [0.9 * one - rate * gradient for one, gradient in zip(momenta, gradients, strict=True)]
        self.state = [kernel + momenta[0], bias + momenta[1], count + 1, rate, *momenta]
        for variable in self._mine():
            variable._value = Empty()
        return {"loss": float((error**2).mean())}

    def put_back(self):
        """Gives the variables their values, in new objects."""
        if self.state is None:
            return
        for variable, value in zip(self._mine(), self.state, strict=True):
            variable._value = tf.Variable(value.astype(variable.dtype))
        self.state = None


def toy_model():
    """A compiled and built model, whose first weights are the same in each call."""
    keras.utils.set_random_seed(3)
    model = ToyModel([keras.Input((4,)), keras.layers.Dense(2)])
    model.compile(keras.optimizers.SGD(0.01, momentum=0.9), "mse", run_eagerly=True)
    model.optimizer.build(model.trainable_variables)
    return model
