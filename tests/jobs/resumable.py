"""A training over ``deepfreeze.data.Resumable`` that writes down every sample it trains: resumable.py API FOLDER ITEMS GLOBAL_BATCH EPOCHS
STOP [ACCUMULATED]. Rank R appends a line of JSON for each batch to FOLDER/rank-R: epoch, batch, batches of all epochs, and the numbers of
the samples; and for each epoch to FOLDER/logs-R: epoch and logs. At the end its history is in FOLDER/history-R.json, its weights in
FOLDER/weights-R.npz. At the end of batch STOP its ranks are killed (0: never). Each checkpoint, one after each update, is waited for. An
update has the gradients of ACCUMULATED batches."""

import json
import logging
import os
import signal
import sys
from pathlib import Path

import models
import numpy as np

import deepfreeze
from deepfreeze.data import Resumable


def main() -> None:
    api, folder, items, global_batch, epochs, stop = sys.argv[1], Path(sys.argv[2]), *map(int, sys.argv[3:7])
    accumulated, whole = int((*sys.argv[7:], 1)[0]), -(-items // global_batch)
    keras = models.framework(api)
    import tensorflow as tf

    ranked, rank = "OMPI_COMM_WORLD_SIZE" in os.environ, 0
    if ranked:
        import horovod.tensorflow as hvd

        hvd.init()
        rank = hvd.rank()
    logging.basicConfig()
    logging.getLogger("deepfreeze").setLevel(logging.INFO)
    trained: list[int] = []

    def note(numbers, weights):
        trained.extend(int(number) for number, weight in zip(numbers, weights, strict=True) if weight)
        return np.int64(0)

    class Noting(keras.Model):
        def train_step(self, data):
            x, _, weights = data if len(data) == 3 else (*data, tf.ones_like(data[0][:, 0]))
            tf.numpy_function(note, [x[:, 0], weights], tf.int64)
            return super().train_step(data)

    keras.utils.set_random_seed(1)
    inputs = keras.Input((4,))
    model = Noting(inputs, keras.layers.Dense(1)(keras.layers.Dense(8, "relu")(inputs)))
    if accumulated == 1:
        optimizer = keras.optimizers.Adam(1e-3)
        optimizer = models.averaging(keras, optimizer) if ranked else optimizer
    else:
        optimizer = models.accumulating(keras, accumulated)

    def target(y_true, y_pred):
        return y_true[:, 0]  # the mean of the samples' own numbers: each rank has its own samples

    model.compile(optimizer, "mse", metrics=["mae", target], jit_compile=False)
    x = np.concatenate([np.arange(items)[:, None], np.random.default_rng(0).random((items, 3))], 1).astype(np.float32)
    data = Resumable((x, x.sum(1, keepdims=True)), global_batch=global_batch, seed=3)

    def plain(logs):
        return {name: np.asarray(value, float).tolist() for name, value in logs.items() if "deepfreeze" not in name}

    class Writing(keras.callbacks.Callback):
        epoch = 0

        def on_epoch_begin(self, epoch, logs=None):
            self.epoch = epoch

        def on_train_batch_end(self, batch, logs=None):
            number = self.epoch * whole + batch + 1
            self.note("rank", [self.epoch, batch, number, trained])
            trained.clear()
            if number == stop:
                os.kill(os.getpid(), signal.SIGKILL)

        def on_epoch_end(self, epoch, logs=None):
            self.note("logs", [epoch, plain(logs)])

        def note(self, kind, line):
            with open(folder / f"{kind}-{rank}", "a") as file:
                print(json.dumps(line), file=file, flush=True)

    waits = {"wait_for": "external"}
    checkpoint = deepfreeze.Checkpoint(folder / "run", every=1, data=data, **waits)
    broadcast = [deepfreeze.BroadcastState()] if ranked else []
    history = model.fit(data, epochs=epochs, verbose=0, callbacks=[*broadcast, checkpoint, Writing()])
    (folder / f"history-{rank}.json").write_text(json.dumps([history.epoch, plain(history.history)]))
    np.savez(folder / f"weights-{rank}.npz", *model.get_weights())


main()
