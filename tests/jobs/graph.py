"""Case: trains two steps of a stack of equal layers, a checkpoint at each; returns the graph that TensorFlow runs, functions inlined
and everything optimised: {node: [its op, its inputs]}. (As it is traced, Keras passes all gradients through one op, which TensorFlow
takes apart.)"""

import models
import numpy as np

import deepfreeze
from tests.support.options import grouped

LAYERS = 8


def is_allreduce(op):
    return op.startswith("Horovod") and op.endswith("Allreduce")


def run(folder, optimizer, **options):
    keras = models.framework("keras")
    import horovod.tensorflow as hvd
    from tensorflow.python.eager import context

    hvd.init()

    class Graphs(keras.callbacks.Callback):
        """Takes the graphs of the first step."""

        def on_train_begin(self, logs=None):
            context.enable_run_metadata()

        def on_train_batch_end(self, batch, logs=None):
            if batch == 0:
                self.found = context.export_run_metadata().function_graphs
                context.disable_run_metadata()

    keras.utils.set_random_seed(1)
    layers = [keras.layers.Dense(64, use_bias=False) for _ in range(LAYERS)]
    model = keras.Sequential([keras.Input((64,)), *layers])
    averaging = deepfreeze.DistributedOptimizer(keras.optimizers.SGD(0.1, **optimizer))
    model.compile(averaging, "mse", jit_compile=False)
    graphs, data = Graphs(), np.ones((2, 64), np.float32)
    checkpoint = deepfreeze.Checkpoint(f"{folder}/run", every=1, local=None, **grouped(options))
    callbacks = [deepfreeze.BroadcastState(), checkpoint, graphs]
    model.fit(data, data, batch_size=1, verbose=0, callbacks=callbacks)
    parts = [part for found in graphs.found for part in found.partition_graphs]
    (graph,) = [part for part in parts if any(is_allreduce(node.op) for node in part.node)]
    return {node.name: [node.op, list(node.input)] for node in graph.node}
