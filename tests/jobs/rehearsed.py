"""A user's training, which knows nothing of rehearsals: rehearsed.py HOW, with TF_USE_LEGACY_KERAS or without.

HOW: "right" (each batch follows from the step), "shuffled" (fit shuffles, seeded), "unseeded" (fit shuffles), "forgets" (an object in
``extra`` forgets its count), "anew" (resume="off"), "loop" (a loop by hand), "executions" (three steps in one execution), "data" (over a
``Resumable``), "ranks" (right, under Horovod)."""

import os
import sys

import numpy as np
from models import averaging

import deepfreeze

if os.environ.get("TF_USE_LEGACY_KERAS"):
    import tf_keras as keras
else:
    import keras

how = sys.argv[1]
rank, size = 0, 1
if how == "ranks":
    import horovod.tensorflow as hvd

    hvd.init()
    rank, size = hvd.rank(), hvd.size()
if how != "unseeded":
    keras.utils.set_random_seed(7 + rank)

x = np.random.default_rng(0).normal(size=(320, 4)).astype("float32")
y = x.sum(1, keepdims=True)
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8), keras.layers.Dense(1)])
optimizer = keras.optimizers.Adam(0.01)


def batches(step):
    while True:
        rows = np.random.default_rng(step * size + rank).choice(len(x), 16)
        yield x[rows], y[rows]
        step += 1


class Count(keras.callbacks.Callback):
    """Counts batches, and forgets them."""

    count = 0

    def on_train_batch_end(self, batch, logs=None):
        self.count += 1

    def state_dict(self):
        return {"count": self.count}

    def load_state_dict(self, state):
        pass


if how == "loop":
    import tensorflow as tf

    optimizer.build(model.trainable_variables)

    @tf.function
    def train_step(inputs, targets):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(inputs, training=True) - targets) ** 2)
        optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))

    with deepfreeze.capture(optimizer, model, "runs/mine", every=4) as loop:
        for inputs, targets in batches(loop.start):
            train_step(tf.constant(inputs), tf.constant(targets))
            if not loop.step():
                break
    sys.exit()

callbacks, options = [], {}
if how == "ranks":
    optimizer = averaging(keras, optimizer)
    callbacks = [deepfreeze.BroadcastState()]
count = Count()
if how == "forgets":
    options, callbacks = {"extra": {"count": count}}, [count]
if how == "anew":
    options = {"resume": "off"}
if how == "data":
    options = {"data": deepfreeze.data.Resumable((x, y), batch_size=16, seed=3)}
checkpoint = deepfreeze.Checkpoint("runs/mine", every=4, **options)
model.compile(optimizer, "mse", steps_per_execution=3 if how == "executions" else 1, jit_compile=False)
if how == "data":
    model.fit(options["data"], epochs=3, verbose=0, callbacks=[checkpoint])
elif how in ("shuffled", "unseeded"):
    model.fit(x, y, batch_size=16, epochs=3, verbose=0, callbacks=[*callbacks, checkpoint])
else:
    start = checkpoint.open(model)
    model.fit(batches(start), steps_per_epoch=30, verbose=0, callbacks=[*callbacks, checkpoint])
