"""Case: a model that is not built, or whose optimizers are not, when ``fit`` begins, and that begins with other weights on each rank.
Trains six batches by itself, and in two parts with FOLDER/run between them. Returns the steps that the second part was saved at, and the
names of tensors that differ."""

import importlib

import models
import numpy as np

import deepfreeze
from tests.support import kerases, later_models, own_steps, trainings

BATCHES = 6
PROGRAMS = own_steps.DISTILLERS | {"in_list": own_steps.in_list}


def run(api, folder, kind):
    keras = importlib.import_module(api)
    import horovod.tensorflow as hvd

    hvd.init()

    def fit(seed, start, stop, checkpoints=True):
        keras.utils.set_random_seed(seed)
        if kind in PROGRAMS and kerases.is_2(keras):  # Horovod's own optimizer averages nothing in such a train_step
            model = own_steps.distiller(keras, average=lambda gradient: hvd.allreduce(gradient, op=hvd.Average))
        else:
            make = {**later_models.MODELS, **PROGRAMS}[kind]
            model = make(keras, lambda optimizer: models.averaging(keras, optimizer))
        counting = {"optimizer": model.g_optimizer} if kind in later_models.COUNTING else own_steps.counting(model)
        callbacks = [deepfreeze.BroadcastState()]
        if checkpoints:
            # Before the broadcast, and after it.
            callbacks.insert(start % 2, deepfreeze.Checkpoint(f"{folder}/run", every=2, keep=9, verbose=0, **counting))
        data = data_of(hvd.rank()).skip(start).take(stop - start)
        model.fit(data, verbose=0, shuffle=False, callbacks=callbacks)
        return values(model)

    whole = fit(hvd.rank(), 0, BATCHES, checkpoints=False)
    fit(hvd.rank(), 0, 3)
    resumed = fit(7 + hvd.rank(), 3, BATCHES)
    assert whole.keys() == resumed.keys()
    return [name for name in whole if whole[name].tobytes() != resumed[name].tobytes()]


def data_of(rank):
    import tensorflow as tf

    rng = np.random.default_rng(rank)
    x, y = rng.random((2 * BATCHES, trainings.FEATURES), np.float32), rng.random((2 * BATCHES, 1), np.float32)
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(2)


def values(model):
    """The replicated tensors by number: the names of nameless layers count all of a process."""
    from deepfreeze.state.training_state import COUNT, SLOT, WEIGHT, TrainingState

    tensors = TrainingState.of(model).of_kind(WEIGHT, SLOT, COUNT)
    return {f"{n} {t.kind}": np.asarray(t.variable) for n, t in enumerate(tensors)}
