"""A training over an input of ``deepfreeze.data`` that is killed again and again: attacked.py FOLDER ATTEMPT JSON, under mpirun. JSON is an
object with the values of ``Told``. The run is FOLDER/run. Every item is noted before it is trained (tests/support/trained.py). The training
has callbacks with a state, a validation, and looks at its own input in between. At the end rank R writes FOLDER/end-ATTEMPT-R.json."""

import json
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import models
import numpy as np

import deepfreeze
from deepfreeze.data import Resumable, Skipping
from tests.support.trained import Recorder

RATE = 0.05


@dataclass(frozen=True)
class Told:
    """``input``: "Resumable", or "Skipping" over a pipeline of this rank's own items; ``batch``: the argument of ``Resumable`` that says
    how large batches are; ``every``: steps between two checkpoints; ``waits``: until each is committed; ``opens``: whether the program
    calls ``open`` and looks at its input before ``fit``; ``looks``: how often it goes over its input after each batch, by ``evaluate``
    and ``predict`` in turns; ``pause``: seconds after each batch; ``dies``: the step at the end of which all ranks are killed, 0 for
    none."""

    api: str
    items: int
    epochs: int
    input: str
    last: str
    batch: dict[str, int]
    every: int
    waits: bool
    opens: bool
    looks: int
    pause: float
    dies: int


def main() -> None:
    folder, attempt, told = Path(sys.argv[1]), int(sys.argv[2]), Told(**json.loads(sys.argv[3]))
    keras = models.framework(told.api)
    import horovod.tensorflow as hvd
    import tensorflow as tf

    hvd.init()
    recorder = Recorder(folder, attempt, hvd.rank())

    class Recorded(keras.Model):
        def train_step(self, data):
            x, _, weights = data if len(data) == 3 else (*data, tf.ones_like(data[0][:, 0]))
            updates = tf.convert_to_tensor(self.optimizer.iterations)
            with tf.control_dependencies([tf.numpy_function(recorder.note, [updates, x[:, 0], weights], tf.int64)]):
                return super().train_step(data)

    keras.utils.set_random_seed(1)
    inputs = keras.Input((4,))
    hidden = keras.layers.Dense(8, "relu")(keras.layers.Rescaling(1 / told.items)(inputs))
    outputs = keras.layers.Dense(1)(hidden)
    model, looking = Recorded(inputs, outputs), keras.Model(inputs, outputs)
    model.compile(models.averaging(keras, keras.optimizers.Adam(RATE)), "mse", metrics=["mae"], jit_compile=False)
    # ``evaluate`` of the model itself would reset the running means of its epoch.
    looking.compile(keras.optimizers.Adam(RATE), "mse", jit_compile=False)

    rng = np.random.default_rng(0)
    x = np.concatenate([np.arange(told.items)[:, None], rng.random((told.items, 3))], 1).astype(np.float32)
    y = rng.random((told.items, 1), np.float32)
    validation = x[:8], rng.random((8, 1), np.float32)

    def pipeline(epoch):
        own = np.random.default_rng(epoch).permutation(told.items)[hvd.rank() :: hvd.size()]
        return tf.data.Dataset.from_tensor_slices((x[own], y[own])).batch(told.batch["batch_size"])

    resumable = told.input == "Resumable"
    data = Resumable((x, y), seed=3, last=told.last, **told.batch) if resumable else Skipping(pipeline)

    def look(number):
        call = looking.predict if number % 2 else looking.evaluate
        call(data, verbose=0)

    class Beside(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            recorder.epoch = epoch

        def on_train_batch_end(self, batch, logs=None):
            for number in range(told.looks):
                look(batch + number)
            time.sleep(told.pause)
            if 0 < told.dies <= updates(model):
                os.kill(os.getpid(), signal.SIGKILL)

    callbacks = stateful(keras)
    waiting = {"wait_for": "external"} if told.waits else {}
    checkpoint = deepfreeze.Checkpoint(folder / "run", every=told.every, data=data, extra=callbacks, **waiting)
    if told.opens:
        checkpoint.open(model)
        look(0)
    history = model.fit(
        data,
        epochs=told.epochs,
        validation_data=validation,
        verbose=0,
        callbacks=[deepfreeze.BroadcastState(), *callbacks.values(), checkpoint, Beside()],
    )
    logs = plain(history.history)
    end = {
        "updates": updates(model),
        "epochs": history.epoch,
        "history": logs,
        "states": states(model, callbacks),
        "replayed": replayed(keras, looking, logs),
        "weights": [np.asarray(weight).tolist() for weight in model.get_weights()],
    }
    (folder / f"end-{attempt}-{hvd.rank()}.json").write_text(json.dumps(end))


def stateful(keras):
    """Callbacks with a state, by name. They go by the loss of the validation, which is the same on all ranks."""
    return {
        "slower": keras.callbacks.ReduceLROnPlateau("val_loss", factor=0.5, patience=1, cooldown=1, mode="min"),
        "stop": keras.callbacks.EarlyStopping("val_loss", patience=3, mode="min"),
    }


def updates(model) -> int:
    return int(np.asarray(model.optimizer.iterations))


def rate(model) -> float:
    return float(np.asarray(model.optimizer.learning_rate))


def plain(logs):
    return {name: np.asarray(values, float).tolist() for name, values in logs.items() if "deepfreeze" not in name}


def states(model, callbacks):
    """What the callbacks know, and the learning rate."""
    names = {"slower": ("best", "wait", "cooldown_counter"), "stop": ("best", "best_epoch", "wait", "stopped_epoch")}
    found = {name: [float(getattr(callbacks[name], part)) for part in parts] for name, parts in names.items()}
    return {**found, "rate": rate(model)}


def replayed(keras, model, logs):
    """The ``states`` of callbacks that have seen the epochs of this history, and no kill; and how many epochs they would have let train."""
    callbacks = stateful(keras)
    model.optimizer.learning_rate = RATE
    model.stop_training = False
    for callback in callbacks.values():
        callback.set_model(model)
        callback.on_train_begin()
    for epoch, loss in enumerate(logs["val_loss"]):
        for callback in callbacks.values():
            callback.on_epoch_end(epoch, {"val_loss": loss})
    return {**states(model, callbacks), "stopped": bool(model.stop_training)}


main()
