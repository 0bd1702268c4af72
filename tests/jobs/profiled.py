"""Case: a training whose step is profiled, in FOLDER/run, with a checkpoint every ``every`` steps. ``slower``: by rank, seconds by which
its steps take longer in the model's own code; ``fails``: a step that rank 0 can't hand over, because the run never has room. Returns the
steps that were saved, the bytes of the model's weights, and the messages of events."""

import threading
import time
from unittest import mock

import models
import tensorflow as tf

import deepfreeze
from deepfreeze.errors import WaitError
from deepfreeze.events import Notice
from deepfreeze.retention.storage import Storage


def run(folder, every, slower=None, fails=None, batches=80):
    keras = models.framework("keras")
    import horovod.tensorflow as hvd

    hvd.init()
    late = (slower or {}).get(str(hvd.rank()), 0)

    hands_over = Storage.hands_over

    def refuse(storage, step):
        if step == fails and hvd.rank() == 0:
            raise WaitError(where="storage=", expected="room", found="none", todo="free some")
        return hands_over(storage, step)

    def wait(x):
        time.sleep(late)
        return x

    class Slow(keras.layers.Layer):
        def call(self, x):
            return tf.ensure_shape(tf.py_function(wait, [x], x.dtype), x.shape)

    optimizer = models.averaging(keras, keras.optimizers.SGD(1e-3))
    inputs = keras.Input((16, 8))
    x = keras.layers.Dense(300, activation="relu")(keras.layers.Flatten()(Slow()(inputs)))
    model = keras.Model(inputs, keras.layers.Dense(3)(keras.layers.Dense(300, activation="relu")(x)))
    model.compile(optimizer, "mse", jit_compile=False)
    events = []

    def end(logs=None):
        for thread in threading.enumerate():
            if thread.name == "deepfreeze-plan":
                thread.join()

    checkpoint = deepfreeze.Checkpoint(
        f"{folder}/run",
        every,
        keep=99,
        verbose=0,
        wait_for="external",
        on_error="raise" if fails is None else "warn",
        storage=None if fails is None else "1TB",
        capture=deepfreeze.Capture(profile=True),
        listeners=[events.append],
    )
    ends = keras.callbacks.LambdaCallback(on_train_end=end)
    callbacks = [deepfreeze.BroadcastState(), ends, checkpoint]
    with mock.patch.object(Storage, "hands_over", refuse):
        model.fit(models.batches(batches), verbose=0, shuffle=False, callbacks=callbacks)
    messages = [one.message for one in events if isinstance(one, Notice)]
    return {"steps": checkpoint.stats.steps, "nbytes": 4 * model.count_params(), "messages": messages}
