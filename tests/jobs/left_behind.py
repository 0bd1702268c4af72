"""Case: both ranks are interrupted in their ``fit``, and the program goes on. WAY: same (with the same objects), new (with new ones; the
old ones are still there), forgotten (new ones; rank 1 has dropped the old ones). Returns the batches that were trained after the
interruption, or the error's class."""

import contextlib
import gc

import models
import numpy as np

import deepfreeze


def run(api, folder, way):
    keras = models.framework(api)
    import horovod.tensorflow as hvd

    hvd.init()
    rng = np.random.default_rng(0)
    arrays = rng.random((64, 16, 8), np.float32), rng.random((64, 3), np.float32)
    trained = []

    class Interrupt(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            trained.append(batch)
            if len(trained) == 5:
                raise KeyboardInterrupt

    def objects():
        model = models.build(keras, "dense", optimizer=models.averaging(keras, keras.optimizers.SGD(1e-3)))
        data = deepfreeze.data.Resumable(arrays, batch_size=4, seed=1)
        return model, data, deepfreeze.Checkpoint(f"{folder}/run", 2, keep=9, data=data, timeout=60)

    def fit(model, data, checkpoint):
        model.fit(data, verbose=0, callbacks=[checkpoint, Interrupt()])

    first = objects()
    with contextlib.suppress(KeyboardInterrupt):
        fit(*first)
    if way == "same":
        fit(*first)
        return trained[5:]
    second = objects()
    if way == "forgotten" and hvd.rank() == 1:
        del first
        gc.collect()
    try:
        fit(*second)
    except deepfreeze.Error as error:
        return type(error).__name__
    return trained[5:]
