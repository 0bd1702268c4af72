"""Case: a training under mixed_float16. Rank 1's third batch overflows, so all ranks skip that update.

Trains six batches three times from the same start: by itself (rank 0 leaves what stock Keras saves after each step as
FOLDER/STEP.weights.h5), with a checkpoint of every ``every``-th step in FOLDER/run (captured ``when``), and in two parts with FOLDER/parts
between them, after which the second part must hold what the first training does. Returns how trainings that can't work are refused.
"""

import importlib
from pathlib import Path

import numpy as np

import deepfreeze
from deepfreeze.state.keras_objects import optimizer_variables
from tests.support import kerases, trainings

BATCHES = 6


def optimizer(keras, wrong=False):
    adam = keras.optimizers.Adam(1e-2)
    if kerases.is_2(keras):
        import horovod.tensorflow.keras as hvd

        return hvd.DistributedOptimizer(adam)  # compile puts the loss scale around it
    if wrong:
        return deepfreeze.DistributedOptimizer(adam)
    return deepfreeze.DistributedOptimizer(keras.optimizers.LossScaleOptimizer(adam))


def batches(rank):
    import tensorflow as tf

    x = np.random.default_rng(rank).random((2 * BATCHES, trainings.FEATURES), np.float32)
    if rank == 1:
        x[4] = np.inf
    return tf.data.Dataset.from_tensor_slices((x, np.ones((2 * BATCHES, 1), np.float32))).batch(2)


def values(model):
    weights = {f"weight {n}": value for n, value in enumerate(model.get_weights())}
    return weights | {f"slot {n}": np.asarray(v) for n, v in enumerate(optimizer_variables(model.optimizer))}


def run(api, folder, every=1, when="update"):
    folder = Path(folder)
    keras = importlib.import_module(api)
    import horovod.tensorflow as hvd

    hvd.init()
    keras.mixed_precision.set_global_policy("mixed_float16")

    def make(wrong=False, **compiling):
        # Or the first gradients would overflow by themselves.
        return trainings.dense(keras, optimizer(keras, wrong), loss_weights=[1e-3], **compiling)

    def refused(**wrong):
        try:
            deepfreeze.Checkpoint(folder / "refused").open(make(**wrong))
        except deepfreeze.UnsupportedError as error:
            told.append(str(error))

    told = []
    refused(jit_compile=True)
    if not kerases.is_2(keras):
        refused(wrong=True)

    def fit(model, data, *callbacks):
        model.fit(data, verbose=0, shuffle=False, callbacks=list(callbacks))
        return model

    data, capture = batches(hvd.rank()), deepfreeze.Capture(when=when)
    whole = fit(make(), data, *([trainings.save_weights(keras, folder)] if hvd.rank() == 0 else []))
    fit(make(), data, deepfreeze.Checkpoint(folder / "run", every=every, keep=9, capture=capture))
    fit(make(), data.take(3), deepfreeze.Checkpoint(folder / "parts", every=9))
    resumed, checkpoint = make(), deepfreeze.Checkpoint(folder / "parts", every=9)
    assert checkpoint.open(resumed) == (3 if kerases.is_2(keras) else 2)
    fit(resumed, data.skip(3), checkpoint)
    expected, found = values(whole), values(resumed)
    assert expected.keys() == found.keys()
    differing = [name for name in expected if expected[name].tobytes() != found[name].tobytes()]
    assert not differing, differing
    assert all(np.isfinite(value).all() for value in found.values())
    return told
