"""The paper's own way to share a tensor among ranks, as a baseline: slices along its largest axis, taken in the graph.

Such a slice is not contiguous in memory unless the largest axis is the first, and is a tensor of its own, collected by a read
of its own. Imports TensorFlow.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from benchmarks.paper_approaches import Raw, Took
from deepfreeze.frameworks.tensorflow.hooks import Patch
from deepfreeze.frameworks.tensorflow.variables import tf_variable

_GROUPS = 16  # conditional ops, as many as our own capture has


class Largest(keras.callbacks.Callback):
    """Captures at the steps ``due``, behind the optimizer's update, and blocks until the local tier has the slices."""

    def __init__(self, due: Sequence[int], rank: int, world: int, place: dict[str, str]) -> None:
        super().__init__()
        self._due, self._rank, self._world, self._place = sorted(due), rank, world, place
        self._armed = tf.Variable(-1, dtype=tf.int64, trainable=False)
        self.took: dict[int, Took] = {}

    def on_train_begin(self, logs: Any = None) -> None:
        """Puts the capture into the graph."""
        trained = {id(v) for v in self.model.trainable_weights}
        self._parts: list[_Part] = []
        sizes: list[list[int]] = [[] for _ in range(self._world)]
        for weight in reversed(self.model.weights):
            shape = tuple(weight.shape)
            axis = int(np.argmax(shape))
            for rank in range(self._world):
                whole = id(weight) not in trained  # rank 0 saves what differs from rank to rank
                bounds = [shape[axis] * r // self._world for r in (rank, rank + 1)]
                start, stop = ((0, shape[axis]) if rank == 0 else (0, 0)) if whole else bounds
                sizes[rank].append((stop - start) * int(np.prod(shape)) // shape[axis] * 4)
                if rank == self._rank:
                    self._parts.append(_Part(tf_variable(weight), axis, start, stop))
        self._raw = Raw(self._place, self._rank, self._world, sizes)
        self._branches = [_branch(parts) for parts in _groups(self._parts)]
        self._patch = Patch(self.model, self.model.optimizer, lambda: None, self._capture, lambda step: None)
        self._arm(-1)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Collects and saves, if this step was due."""
        step = int(tf_variable(self.model.optimizer.iterations).numpy())
        if step in self._due:
            begin = time.perf_counter()
            arrays = [np.asarray(memoryview(part.buffer.read_value())) for part in self._parts]
            ready = time.perf_counter()
            self._raw.save(step, arrays)
            self.took[step] = ready - begin, time.perf_counter() - begin
        self._arm(step)

    def on_train_end(self, logs: Any = None) -> None:
        """Takes the capture out again."""
        self._patch.close()
        self._raw.settle()
        self._raw.close()

    def settle(self) -> None:
        """Waits until nothing goes on in the background."""
        self._raw.settle()

    def _arm(self, step: int) -> None:
        self._armed.assign(next((due for due in self._due if due > step), -1))

    def _capture(self, step: tf.Tensor) -> None:
        hit = tf.equal(step, self._armed.read_value())
        for take, leave in self._branches:
            tf.raw_ops.If(cond=hit, input=take.captured_inputs, Tout=[], then_branch=take, else_branch=leave)


class _Part:
    """This rank's slice of a variable, and the buffer that it goes to."""

    def __init__(self, variable: Any, axis: int, start: int, stop: int) -> None:
        self.variable, self._axis, self._start, self._stop = variable, axis, start, stop
        self.buffer = tf.Variable(tf.zeros([0], variable.dtype), shape=tf.TensorShape(None), trainable=False)

    def take(self) -> None:
        """In the branch: the slice is a fresh tensor unless TensorFlow can alias the variable, which the copy prevents."""
        at = [slice(None)] * self._axis + [slice(self._start, self._stop)]
        aliased = self._axis == 0
        found = self.variable.read_value()[tuple(at)]
        self.buffer.assign(tf.raw_ops.DeepCopy(x=found) if aliased else found)


def _groups(parts: Sequence[_Part]) -> list[list[_Part]]:
    """Neighbours together, about as many bytes in each."""
    sizes = [part.variable.shape.num_elements() for part in parts]
    group = np.minimum((np.cumsum(sizes) - sizes) * _GROUPS // max(1, sum(sizes)), _GROUPS - 1)
    return [[part for part, n in zip(parts, group, strict=True) if n == g] for g in sorted(set(group.tolist()))]


def _branch(parts: Sequence[_Part]) -> tuple[Any, Any]:
    def take() -> None:
        for part in parts:  # the same inputs on every rank, see deepfreeze.frameworks.tensorflow.capture_groups
            part.take()

    def leave(*handles: tf.Tensor) -> None:
        """Of a step that captures nothing."""

    taken = tf.function(take, autograph=False).get_concrete_function()
    handles = [tf.TensorSpec((), tf.resource)] * len(taken.captured_inputs)
    return taken, tf.function(leave, handles, autograph=False).get_concrete_function()
