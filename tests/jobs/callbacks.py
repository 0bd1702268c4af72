"""A training of at most 20 epochs of 5 batches with Keras's own callbacks in ``extra=``: callbacks.py API FOLDER KILL WHERE [data]. Kills
its ranks at step KILL (0: never): at the end of the "batch", or in the "test" of the epoch that ends with it. Prints the epochs that have
ended, each with its learning rate, and what the callbacks know at the end. "data": over a ``Resumable``, with a checkpoint of each step;
the history is printed too."""

import json
import os
import signal
import sys

import models
import numpy as np

import deepfreeze
from deepfreeze.store import Best, Latest


def main() -> None:
    api, folder, kill, where, *inside = sys.argv[1:]
    keras = models.framework(api)
    ranked = "OMPI_COMM_WORLD_SIZE" in os.environ
    if ranked:
        import horovod.tensorflow as hvd

        hvd.init()
    optimizer = keras.optimizers.SGD(0.5)
    model = models.build(keras, "lstm", optimizer=models.averaging(keras, optimizer) if ranked else optimizer)

    def here(step: str) -> bool:
        return where == step and int(np.asarray(model.optimizer.iterations)) == int(kill)

    def rate() -> str:
        return f"{float(np.asarray(model.optimizer.learning_rate)):.3g}"

    class Beside(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if here("batch"):
                os.kill(os.getpid(), signal.SIGKILL)

        def on_test_begin(self, logs=None):
            if here("test"):
                os.kill(os.getpid(), signal.SIGKILL)

        def on_epoch_end(self, epoch, logs=None):
            print(f"epoch {epoch} at {rate()}", flush=True)

    stop = keras.callbacks.EarlyStopping("val_loss", patience=5, restore_best_weights=True)
    slower = keras.callbacks.ReduceLROnPlateau("val_loss", factor=0.5, patience=2, cooldown=1)
    log = keras.callbacks.CSVLogger(f"{folder}/log.csv", separator=";")
    train, validation = models.batches(10 if inside and ranked else 5), models.batches(2, start=5)
    options = {"every": "epoch"}
    if inside:
        x, y = (np.concatenate(part) for part in zip(*train.as_numpy_iterator(), strict=True))
        train = deepfreeze.data.Resumable((x, y), batch_size=models.BATCH)
        options = {"every": 1, "data": train}
    checkpoint = deepfreeze.Checkpoint(
        f"{folder}/run",
        **options,
        keep=Latest(1) | Best("val_loss", "min"),
        wait_for="external",
        extra={"stop": stop, "slower": slower, "log": log},
    )
    first = not ranked or hvd.rank() == 0
    callbacks = [Beside(), slower, *([log] if first else []), checkpoint, stop]
    history = model.fit(train, validation_data=validation, epochs=20, verbose=0, shuffle=False, callbacks=callbacks)
    weights = float(sum(np.abs(value).sum() for value in model.get_weights()))
    print(f"stopped {stop.stopped_epoch} best {stop.best_epoch} {stop.best!r} rate {rate()} weights {weights!r}")
    if inside:
        waits = stop.wait, slower.wait, slower.cooldown_counter, repr(float(slower.best))
        logs = {
            name: np.asarray(values, float).tolist()
            for name, values in history.history.items()
            if "deepfreeze" not in name
        }
        print(f"stopped with {waits} history {json.dumps([history.epoch, logs])}")


main()
