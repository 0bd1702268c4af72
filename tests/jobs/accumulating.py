"""Case: the optimizer updates after every second batch. Trains from where FOLDER/run is to batch STOP, with all random states;
FOLDER/STOP-R.npz gets this rank's saved tensors by dataset path."""

import models
import numpy as np

import deepfreeze


class Position:
    """How many batches this rank has had."""

    def __init__(self):
        self.batches = 0

    def state_dict(self):
        return {"batches": self.batches}

    def load_state_dict(self, state):
        self.batches = state["batches"]


def run(api, folder, stop):
    keras = models.framework(api)
    if models.is_keras_2(keras):
        # Or what dropout draws lies inside of TensorFlow's kernels.
        keras.backend.experimental.enable_tf_random_generator()
        import horovod.tensorflow.keras as hvd

        hvd.init()
        broadcast = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    else:
        import horovod.tensorflow as hvd

        hvd.init()
        broadcast = deepfreeze.BroadcastState()
    model = models.build(keras, "dense", optimizer=models.accumulating(keras, 2), seed=1 + hvd.rank())
    # Horovod's own callback broadcasts only after the first batch: alike from the beginning, both runs are the same.
    for weight in model.trainable_variables:
        weight.assign(np.full(weight.shape, 0.01, np.float32))
    position = Position()
    checkpoint = deepfreeze.Checkpoint(f"{folder}/run", every=2, keep=9, extra={"position": position}, rng="all")
    start = checkpoint.open(model)
    assert start * 2 == position.batches, (start, position.batches)

    class Count(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            position.batches += 1

    batches = models.batches(stop - position.batches, position.batches, hvd.rank())
    model.fit(batches, verbose=0, shuffle=False, callbacks=[broadcast, Count(), checkpoint])

    from tests.support.state import tensors

    np.savez(
        f"{folder}/{stop}-{hvd.rank()}.npz", **{tensor.path: np.asarray(tensor.variable) for tensor in tensors(model)}
    )
