"""One rank of the ``agreement`` benchmark: steps with and without the control word, in turns. Imports TensorFlow."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from benchmarks import jobs
from deepfreeze.frameworks.tensorflow.graph_maximum import TensorFlowMaximum
from deepfreeze.ranks import world as worlds
from deepfreeze.ranks.control_word import ControlWord

LAYERS, WIDTH, BATCH = 12, 1024, 64
WARM = 10
FIELDS = ("stop", "failed", "skip", "pace")  # of a training whose policy does not learn


def step_function(weights: list[tf.Variable], maximum: TensorFlowMaximum | None) -> Callable[[], tf.Tensor]:
    """A data-parallel step: forward, backward, one allreduce per gradient, and the control word's, if asked for."""
    import horovod.tensorflow as hvd

    x = tf.ones((BATCH, WIDTH))

    @tf.function
    def step() -> tf.Tensor:
        with tf.GradientTape() as tape:
            y = x
            for weight in weights:
                y = tf.nn.relu(y @ weight)
            loss = tf.reduce_mean(y)
        for weight, gradient in reversed(list(zip(weights, tape.gradient(loss, weights), strict=True))):
            weight.assign_sub(1e-6 * hvd.allreduce(gradient, op=hvd.Average))
        if maximum is not None:
            maximum.emit()
        return loss

    return step


def measure(params: dict[str, Any]) -> dict[str, Any]:
    """Seconds of ``steps`` steps of each kind, taken in turns, and of reading the word and setting it."""
    weights = [tf.Variable(tf.random.normal((WIDTH, WIDTH), stddev=0.02, seed=n)) for n in range(LAYERS)]
    word = ControlWord(worlds.current())
    for name in FIELDS:
        word.field(name)
    maximum = TensorFlowMaximum(worlds.current(), len(FIELDS))
    word.seal()
    word.connect(maximum)
    plain, agreeing = step_function(weights, None), step_function(weights, maximum)
    found: dict[str, list[float]] = {"without": [], "with": [], "read": []}
    for number in range(WARM + params["steps"]):
        for name, step in (("without", plain), ("with", agreeing))[:: 1 if number % 2 else -1]:
            begun = time.perf_counter()
            step().numpy()
            if number >= WARM:
                found[name].append(time.perf_counter() - begun)
        begun = time.perf_counter()
        word.meet()
        if number >= WARM:
            found["read"].append(time.perf_counter() - begun)
    return found


if __name__ == "__main__":
    jobs.serve(measure)
