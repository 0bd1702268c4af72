"""Case: a training as Horovod's example for Keras has it, with all of its callbacks, or with what takes their place under Keras 3. Trains
epochs BEGIN and BEGIN + 1, from where FOLDER/run is. Returns the averaged logs of each epoch, the learning rate at the end and the step.
"""

import importlib

import models
import numpy as np

import deepfreeze
from tests.support import kerases

EPOCHS, BATCHES, WARM = 2, 4, 1


def run(api, folder, begin):
    keras = importlib.import_module(api)
    import horovod.tensorflow as hvd

    hvd.init()
    keras.utils.set_random_seed(1 + hvd.rank())
    data = models.batches(BATCHES, rank=hvd.rank()).repeat()
    rate = 1e-3 * hvd.size()
    if kerases.is_2(keras):
        import horovod.tensorflow.keras as hvd_keras

        optimizer = hvd_keras.DistributedOptimizer(
            keras.optimizers.Adam(rate), backward_passes_per_step=1, average_aggregated_gradients=True
        )
        callbacks = [
            hvd_keras.callbacks.BroadcastGlobalVariablesCallback(0),
            hvd_keras.callbacks.MetricAverageCallback(),
            hvd_keras.callbacks.LearningRateWarmupCallback(initial_lr=rate, warmup_epochs=WARM, verbose=1),
        ]
    else:
        warmup = keras.optimizers.schedules.PolynomialDecay(
            rate / hvd.size(), decay_steps=WARM * BATCHES, end_learning_rate=rate, power=1.0
        )
        optimizer = deepfreeze.DistributedOptimizer(keras.optimizers.Adam(warmup))
        callbacks = [deepfreeze.BroadcastState(), deepfreeze.AverageMetrics()]
    layers = keras.layers
    model = keras.Sequential([layers.Flatten(), layers.Dense(8, "relu"), layers.Dropout(0.25), layers.Dense(3)])
    model.compile(optimizer, "mse", metrics=["mae"], jit_compile=False)
    checkpoint = deepfreeze.Checkpoint(f"{folder}/run", every=3, keep=9, verbose=0)
    if hvd.rank() == 0:
        callbacks.append(keras.callbacks.ModelCheckpoint(f"{folder}/checkpoint-{{epoch}}.keras"))
    history = model.fit(
        data,
        steps_per_epoch=BATCHES,
        initial_epoch=begin,
        epochs=begin + EPOCHS,
        verbose=0,
        callbacks=[*callbacks, checkpoint],
    )
    logs = {name: [float(value) for value in history.history[name]] for name in ("loss", "mae")}
    return logs, float(np.asarray(model.optimizer.learning_rate)), int(np.asarray(model.optimizer.iterations))
