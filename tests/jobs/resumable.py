"""A training over ``deepfreeze.data.Resumable`` that writes down every sample it trains: resumable.py API FOLDER ITEMS GLOBAL_BATCH EPOCHS
STOP. Rank R appends a line of JSON for each step to FOLDER/rank-R: epoch, batch, step, and the numbers of the samples. At the end of step
STOP its ranks are killed (0: never). Each checkpoint, one after each step, is waited for."""

import json
import os
import signal
import sys
from pathlib import Path

import models
import numpy as np

import deepfreeze
from deepfreeze.data import Resumable


def main() -> None:
    api, folder, items, global_batch, epochs, stop = sys.argv[1], Path(sys.argv[2]), *map(int, sys.argv[3:])
    keras = models.framework(api)
    import tensorflow as tf

    ranked, rank = "OMPI_COMM_WORLD_SIZE" in os.environ, 0
    if ranked:
        import horovod.tensorflow as hvd

        hvd.init()
        rank = hvd.rank()
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
    optimizer = keras.optimizers.Adam(1e-3)
    averaged = models.averaging(keras, optimizer) if ranked else optimizer
    model.compile(averaged, "mse", metrics=["mae"], jit_compile=False)
    x = np.concatenate([np.arange(items)[:, None], np.random.default_rng(0).random((items, 3))], 1).astype(np.float32)
    data = Resumable((x, x.sum(1, keepdims=True)), global_batch=global_batch, seed=3)

    class Writing(keras.callbacks.Callback):
        epoch = 0

        def on_epoch_begin(self, epoch, logs=None):
            self.epoch = epoch

        def on_train_batch_end(self, batch, logs=None):
            step = int(np.asarray(model.optimizer.iterations))
            with open(folder / f"rank-{rank}", "a") as file:
                print(json.dumps([self.epoch, batch, step, trained]), file=file, flush=True)
            trained.clear()
            if step == stop:
                os.kill(os.getpid(), signal.SIGKILL)

    waits = {"wait_for": "external"}
    checkpoint = deepfreeze.Checkpoint(folder / "run", every=1, data=data, **waits)
    broadcast = [deepfreeze.BroadcastState()] if ranked else []
    history = model.fit(data, epochs=epochs, verbose=0, callbacks=[*broadcast, checkpoint, Writing()]).history
    if rank == 0:
        (folder / "history.json").write_text(json.dumps({name: list(map(float, row)) for name, row in history.items()}))


main()
