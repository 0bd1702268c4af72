"""One rank of the ``overlap`` benchmark: notes in the graph when each layer was captured, and when the bottom layer's gradient was
there. Imports TensorFlow."""

from __future__ import annotations

from typing import Any

import horovod.tensorflow as hvd
import keras
import numpy as np
import tensorflow as tf

from benchmarks import jobs
from deepfreeze.frameworks.keras_hooks import Hooks
from deepfreeze.frameworks.tensorflow import capture, capture_groups, engine_buffers
from deepfreeze.frameworks.tensorflow.distributed import BroadcastState, DistributedOptimizer
from deepfreeze.frameworks.tensorflow.variables import tf_variable
from deepfreeze.plan.placement import per_layer
from deepfreeze.state.training_state import TrainingState

LAYERS, WIDTH, BATCH = 10, 1024, 256
WARM = 3


class TimedGroup(capture_groups.Group):
    """Notes when its capture ended."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.ended = tf.Variable(0.0, dtype=tf.float64)
        super().__init__(*args, **kwargs)

    def _copy(self) -> None:
        super()._copy()
        operations = tf.compat.v1.get_default_graph().get_operations()
        with tf.control_dependencies([op for op in operations if op.type == "DeepfreezeCapture"]):
            now = tf.timestamp()
        with tf.control_dependencies([now]):
            self.ended.assign(now)


class Rounds(Hooks):
    """Captures each step after the first ones, and collects when the top layer was captured and the bottom one's gradient there."""

    def __init__(self, bottom: tf.Variable) -> None:
        super().__init__()
        self._bottom = bottom
        self.found: dict[str, list[float]] = {"top": [], "bottom": []}

    def on_train_begin(self, logs: Any = None) -> None:
        """Before tracing."""
        buffers = engine_buffers.EngineBuffers()
        state = TrainingState.of(self.model, "weights")
        placed = state.placed()
        shards = per_layer([one.spec for one in placed], hvd.size())[hvd.rank()]
        ranges = [capture.Range(placed[one.tensor], one.start, one.stop) for one in shards]
        self._capture = capture.TensorFlowCapture(state, ranges, hvd.rank(), buffers, lambda: None)
        top = tf_variable(self.model.layers[-1].kernel)
        timed = [group for group in self._capture.groups if isinstance(group, TimedGroup)]
        self._top = [group for group in timed if any(piece.variable is top for piece in group.pieces)]
        if not self._top:
            raise SystemExit("no timed group has the top layer: the benchmark no longer fits the library")

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Asks for this step's capture."""
        self._before = tf.timestamp()
        self._capture.arm(batch + 1)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Seconds since the step began."""
        self._capture.collect(batch + 1)
        if batch >= WARM:
            self.found["top"].append(float(max(group.ended for group in self._top) - self._before))
            self.found["bottom"].append(float(self._bottom - self._before))

    def on_train_end(self, logs: Any = None) -> None:
        """Takes the capture out again."""
        self._capture.close()


def measure(params: dict[str, Any]) -> dict[str, list[float]]:
    """Seconds from each step's begin until the top layer's capture ended, and until the bottom layer's gradient was there."""
    reason = engine_buffers.reason_against()
    if reason is not None:
        raise SystemExit(reason)
    tf.config.threading.set_inter_op_parallelism_threads(2)
    capture.Group = TimedGroup  # type: ignore[attr-defined, misc]  # the name under which TensorFlowCapture has it
    bottom = tf.Variable(0.0, dtype=tf.float64)

    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((WIDTH,)), *[keras.layers.Dense(WIDTH, "relu") for _ in range(LAYERS)]])
    optimizer = DistributedOptimizer(keras.optimizers.SGD(1e-3))
    inner = optimizer.apply

    def apply(grads: list, variables: list) -> Any:
        with tf.control_dependencies([grads[0]]):
            now = tf.timestamp()
        with tf.control_dependencies([now]):
            bottom.assign(now)
        return inner(grads, variables)

    optimizer.apply = apply
    model.compile(optimizer, "mse", jit_compile=False)
    optimizer.build(model.trainable_variables)

    rounds = Rounds(bottom)
    x = np.random.default_rng(hvd.rank()).random((BATCH, WIDTH), np.float32)
    batches = tf.data.Dataset.from_tensors((x, x)).repeat(WARM + params["rounds"])
    model.fit(batches, verbose=0, shuffle=False, callbacks=[BroadcastState(), rounds])
    return rounds.found


if __name__ == "__main__":
    jobs.serve(measure)
