"""Counts an optimizer's updates. The count is the step, after which a checkpoint is named. Imports TensorFlow.

With gradient accumulation (Keras 3's ``gradient_accumulation_steps``, Horovod's ``backward_passes_per_step``) only every k-th batch ends
with an update. The batches in between have no step number, so nothing is captured after them.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from deepfreeze.errors import UnsupportedError
from deepfreeze.frameworks.tensorflow import counters
from deepfreeze.frameworks.tensorflow.variables import tf_variable
from deepfreeze.state import private_api

# In place of a step while gradients are being accumulated: no step to capture is equal to it.
_PENDING = -2


class Steps:
    """The count of one optimizer's updates, in a graph and outside of graphs. ``batches_per_step``: k of gradient accumulation, else 1;
    ``optimizer``: the optimizer."""

    def __init__(self, optimizer: Any) -> None:
        """``UnsupportedError`` for an optimizer that accumulates gradients in a way that this version does not know."""
        self.optimizer = inner = optimizer
        while getattr(inner, "inner_optimizer", None) is not None:
            inner = inner.inner_optimizer
        # Horovod keeps the sums of gradients, and the number of batches in them, in an object beside the optimizer.
        self._horovod = private_api.horovods_accumulator(inner)
        own = getattr(inner, "gradient_accumulation_steps", None) or 1
        # With accumulation Keras 3 computes ``iterations`` from a variable that counts batches. That variable is needed here.
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

    @property
    def counter(self) -> tf.Variable:
        """The variable that counts the batches. Each optimizer has one of its own."""
        return self._batches

    def counts(self, optimizer: Any) -> bool:
        """Whether the updates that are counted are those of ``optimizer``."""
        return optimizer is self.optimizer

    def now(self) -> int:
        """The number of updates so far. To be called outside of any graph."""
        return counters.read(self._batches) // self.batches_per_step

    def batches_now(self) -> int:
        """The number of batches so far, also of those whose gradients are still accumulated. To be called outside of any graph."""
        pending = 0 if self._horovod is None else int(self._horovod.counter.numpy())
        return int(self._batches.numpy()) * (1 if self._horovod is None else self.batches_per_step) + pending

    def set(self, step: int) -> None:
        """Sets the number of updates so far. To be called outside of any graph."""
        self._batches.assign(step * self.batches_per_step)

    def batches(self) -> tf.Tensor:
        """In a graph, or eagerly: the number of batches so far, an int64 scalar."""
        return tf.cast(self._batches.read_value(), tf.int64)

    def ended_by(self, batches: tf.Tensor) -> tf.Tensor:
        """In a graph: the step that ends with batch number ``batches`` (an int64 scalar, from 1), as an int64 scalar. -2 if no step ends
        there, because gradients are still being accumulated. To be called after the update is traced."""
        if self.batches_per_step == 1:
            return batches
        if self._horovod is not None:
            pending = tf.not_equal(self._horovod.counter.read_value(), 0)
        else:
            pending = tf.not_equal(batches % self.batches_per_step, 0)
        return tf.where(pending, tf.constant(_PENDING, tf.int64), batches // self.batches_per_step)
