"""A user's training, which knows nothing of its tuning: tuned.py HOW, in runs/mine. It trains until somebody ends it.

HOW: "fit", "loop" (a loop by hand), "two" (two runs, runs/mine and runs/other), "ranks" (fit, under Horovod)."""

import sys
import time

import numpy as np
import tensorflow as tf
from models import averaging, framework

import deepfreeze

how = sys.argv[1]
keras = framework("keras")
batch = tf.constant(np.ones((4, 6), np.float32)), tf.constant(np.ones((4, 1), np.float32))


def compiled():
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(500), keras.layers.Dense(1)])
    optimizer = keras.optimizers.SGD(1e-3)
    model.compile(averaging(keras, optimizer) if how == "ranks" else optimizer, "mse", jit_compile=False)
    return model


def fit(run):
    pause = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: time.sleep(0.005))
    first = [deepfreeze.BroadcastState()] if how == "ranks" else []
    checkpoint = deepfreeze.Checkpoint(run, every=10, verbose=0)
    data = tf.data.Dataset.from_tensors(batch).repeat()
    compiled().fit(data, steps_per_epoch=10**9, verbose=0, callbacks=[*first, pause, checkpoint])


def loop(run):
    model = compiled()
    model.optimizer.build(model.trainable_variables)

    @tf.function
    def train_step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
        variables = model.trainable_variables
        model.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))

    with deepfreeze.capture(model.optimizer, model, run, every=10, verbose=0) as checkpoint:
        while True:
            train_step(*batch)
            time.sleep(0.005)
            if not checkpoint.step():
                break


if how == "ranks":
    import horovod.tensorflow as hvd

    hvd.init()
(loop if how == "loop" else fit)("runs/mine")
if how == "two":
    fit("runs/other")
