"""Puts the capture behind the optimizer's update, on this one optimizer and this one model: nothing global is patched.
Imports TensorFlow.

Two places. Behind ``apply`` (Keras 3) or ``apply_gradients`` (Keras 2, tf_keras): what the optimizer writes, so that the
upper layers are captured while back-propagation of the lower ones goes on. At the end of ``train_step``: what only lies still
then (BatchNorm statistics, metrics, seeds).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from deepfreeze.core.keras_model import tf_variable


@contextlib.contextmanager
def patched(
    model: Any,
    after_update: Callable[[tf.Tensor], None],
    after_step: Callable[[tf.Tensor], None],
) -> Iterator[None]:
    """While open, the model's train function calls ``after_update(step)`` and ``after_step(step)`` as it is traced; ``step``
    is an int64 scalar in the graph: ``iterations`` once this step is done."""
    optimizer = model.optimizer
    iterations = tf_variable(optimizer.iterations)
    name = "apply" if hasattr(optimizer, "apply") else "apply_gradients"
    update, train_step = getattr(optimizer, name), model.train_step

    def apply(*args: Any, **kwargs: Any) -> Any:
        # Read before the update: waiting for the increment, which comes last, would hold up every capture.
        step = tf.cast(iterations.read_value(), tf.int64) + 1
        result = update(*args, **kwargs)
        after_update(step)
        return result

    def step_and_capture(*args: Any, **kwargs: Any) -> Any:
        result = train_step(*args, **kwargs)
        after_step(tf.cast(iterations.read_value(), tf.int64))
        return result

    with _attribute(optimizer, name, apply), _attribute(model, "train_step", step_and_capture):
        _retrace(model)
        try:
            yield
        finally:
            pass
    _retrace(model)


def _retrace(model: Any) -> None:
    """Makes the model build its train function anew: the old one was traced with, or without, the capture."""
    made = model.make_train_function(force=True)
    if made is not None:
        model.train_function = made


@contextlib.contextmanager
def _attribute(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Shadows a method on the instance."""
    setattr(owner, name, value)
    try:
        yield
    finally:
        delattr(owner, name)
