"""Case: rank 1 fails by itself in the sixth batch."""

import models

import deepfreeze


def run(api, folder):
    keras = models.framework(api)
    import horovod.tensorflow as hvd

    hvd.init()
    model = models.build(keras, "dense", optimizer=models.averaging(keras, keras.optimizers.Adam(1e-3)))

    class Fail(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            if batch == 5 and hvd.rank() == 1:
                raise RuntimeError("rank 1's own")

    checkpoint = deepfreeze.Checkpoint(f"{folder}/run", every=2, keep=9, wait_for="external")
    data = models.batches(50, rank=hvd.rank())
    model.fit(data, verbose=0, shuffle=False, callbacks=[deepfreeze.BroadcastState(), checkpoint, Fail()])
