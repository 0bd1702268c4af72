"""How many updates an optimizer has done: the step that names a checkpoint. Imports TensorFlow.

With gradient accumulation (Keras 3's ``gradient_accumulation_steps``, Horovod's ``backward_passes_per_step``) only every k-th
batch ends with an update. Between two of them there is no state that could be named, so nothing is captured there.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from deepfreeze.errors import UnsupportedError
from deepfreeze.state import private_api
from deepfreeze.state.keras_objects import tf_variable

# No step: what the flag is compared with while gradients are being accumulated.
_PENDING = -2


class Steps:
    """The count of one optimizer's updates, outside graphs and inside of them."""

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = inner = optimizer
        while getattr(inner, "inner_optimizer", None) is not None:
            inner = inner.inner_optimizer
        # Horovod keeps its sums, and how many they are, beside the optimizer.
        self._horovod = private_api.horovods_accumulator(inner)
        own = getattr(inner, "gradient_accumulation_steps", None) or 1
        # Keras 3 gives the count of updates as a quotient; the variable behind it counts batches.
        counter = optimizer.iterations if own == 1 else private_api.batch_counter(inner)
        if counter is None:
            raise UnsupportedError(
                where="gradient_accumulation_steps=",
                expected="an optimizer that counts the batches between two updates",
                found=f"{type(inner).__name__} of a Keras that does so in a way unknown to this version",
                todo="leave gradient_accumulation_steps out, or use an older Keras",
            )
        self._batches = tf_variable(counter)
        self.batches_per_step = int(own if self._horovod is None else self._horovod.backward_passes_per_step)

    def counts(self, optimizer: Any) -> bool:
        """Whether it is this optimizer's updates."""
        return optimizer is self._optimizer

    def now(self) -> int:
        """Updates done so far."""
        return int(self._batches.numpy()) // self.batches_per_step

    def set(self, step: int) -> None:
        """As if ``step`` updates had been done."""
        self._batches.assign(step * self.batches_per_step)

    def batches(self) -> tf.Tensor:
        """In a graph, or eagerly: batches so far, an int64 scalar."""
        return tf.cast(self._batches.read_value(), tf.int64)

    def ended_by(self, batches: tf.Tensor) -> tf.Tensor:
        """In a graph: the step that ends with this number of batches; one that is never asked for if none does. To be called
        behind the update."""
        if self.batches_per_step == 1:
            return batches
        if self._horovod is not None:
            pending = tf.not_equal(self._horovod.counter.read_value(), 0)
        else:
            pending = tf.not_equal(batches % self.batches_per_step, 0)
        return tf.where(pending, tf.constant(_PENDING, tf.int64), batches // self.batches_per_step)
