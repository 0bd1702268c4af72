"""A training whose run is opened before ``compile``: early.py API RUN STEPS. Prints the steps at which it began and ended, and a checksum
of the optimizer's variables when it begins."""

import sys
import zlib

import models
import numpy as np

import deepfreeze


def main() -> None:
    api, run, steps = sys.argv[1], sys.argv[2], int(sys.argv[3])
    keras = models.framework(api)
    import horovod.tensorflow as hvd

    hvd.init()
    model = models.build(keras, "dense", seed=1 + hvd.rank())
    model.optimizer = None
    checkpoint = deepfreeze.Checkpoint(run, every=2, keep=100)
    start = checkpoint.open(model)
    optimizer = models.averaging(keras, keras.optimizers.Adam(1e-3))
    model.compile(optimizer, "mse", metrics=["mae"], jit_compile=False)
    found = []

    class Begun(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            variables = optimizer.variables
            values = [np.asarray(v) for v in (variables() if callable(variables) else variables)]
            found.append(zlib.crc32(b"".join(value.tobytes() for value in values)))

    broadcast = deepfreeze.BroadcastState()
    batches = models.batches(steps - start, start, hvd.rank())
    model.fit(batches, verbose=0, shuffle=False, callbacks=[broadcast, checkpoint, Begun()])
    print(f"from {start} to {int(optimizer.iterations.numpy())} with {found[0]:08x}")


main()
