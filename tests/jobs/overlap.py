"""A rank of a deep stack of equal layers; prints when, within the captured step, each layer was captured and when the bottom
layer's gradient was there. One JSON line from rank 0, seconds from the first event."""

import json

import horovod.tensorflow as hvd
import keras
import numpy as np
import tensorflow as tf

from deepfreeze.core.hooks import Hooks
from deepfreeze.core.keras_model import tf_variable
from deepfreeze.core.placement import per_layer
from deepfreeze.distributed import BroadcastState, DistributedOptimizer
from deepfreeze.freeze import capture, engine_buffers, shard_ops

LAYERS, WIDTH, BATCH, STEP = 10, 1024, 256, 4


class TimedGroup(shard_ops.Group):
    """Notes in the graph when its capture ended."""

    def __init__(self, *args, **kwargs):
        self.ended = tf.Variable(0.0, dtype=tf.float64)
        super().__init__(*args, **kwargs)

    def _copy(self):
        super()._copy()
        operations = tf.compat.v1.get_default_graph().get_operations()
        with tf.control_dependencies([op for op in operations if op.type == "DeepfreezeCapture"]):
            now = tf.timestamp()
        with tf.control_dependencies([now]):
            self.ended.assign(now)


def main() -> None:
    hvd.init()
    tf.config.threading.set_inter_op_parallelism_threads(2)
    shard_ops.Group = TimedGroup
    bottom = tf.Variable(0.0, dtype=tf.float64)

    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((WIDTH,)), *[keras.layers.Dense(WIDTH, "relu") for _ in range(LAYERS)]])
    optimizer = DistributedOptimizer(keras.optimizers.SGD(1e-3))
    inner = optimizer.apply

    def apply(grads, variables):
        with tf.control_dependencies([grads[0]]):
            now = tf.timestamp()
        with tf.control_dependencies([now]):
            bottom.assign(now)
        return inner(grads, variables)

    optimizer.apply = apply
    model.compile(optimizer, "mse", jit_compile=False)
    optimizer.build(model.trainable_variables)

    found = {}

    class Take(Hooks):
        def on_train_begin(self, logs=None):
            assert engine_buffers.reason_against() is None
            buffers = engine_buffers.EngineBuffers()
            self.capture = capture.Capture(
                self.model, "weights", hvd.rank(), hvd.size(), per_layer, buffers, lambda: None
            )
            self.capture.arm(STEP)

        def on_train_batch_end(self, batch, logs=None):
            if int(tf_variable(self.model.optimizer.iterations)) != STEP:
                return
            self.capture.collect(STEP)
            top = id(tf_variable(model.layers[-1].kernel))
            timed = [g for g in self.capture.groups if isinstance(g, TimedGroup)]
            ended = [float(g.ended) for g in timed if any(id(p.variable) == top for p in g.pieces)]
            found.update(top=max(ended), bottom=float(bottom), all=sorted(float(g.ended) for g in timed))

        def on_train_end(self, logs=None):
            self.capture.close()

    x = np.random.default_rng(hvd.rank()).random((BATCH, WIDTH), np.float32)
    batches = tf.data.Dataset.from_tensors((x, x)).repeat(STEP + 1)
    model.fit(batches, verbose=0, shuffle=False, callbacks=[BroadcastState(), Take()])
    first = min(found["all"])
    if hvd.rank() == 0:
        print(json.dumps({k: np.round(np.subtract(v, first), 4).tolist() for k, v in found.items()}))


main()
