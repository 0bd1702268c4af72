"""Case: a model with variables that it does not list (tests/support/untracked_models.py), on several ranks. Trains ten batches by itself,
and in two parts with FOLDER/run between them. Returns the names of the values that differ, and for rank-local ones rank 0's alone count."""

import importlib
import warnings

import models
import numpy as np

import deepfreeze
from tests.support import untracked_models


def run(api, folder, kind):
    keras = importlib.import_module(api)
    import horovod.tensorflow as hvd

    hvd.init()

    def fit(seed, start, stop, checkpoints=True):
        keras.utils.set_random_seed(seed)
        model = untracked_models.MODELS[kind](keras, lambda optimizer: models.averaging(keras, optimizer))
        callbacks = [deepfreeze.BroadcastState()]
        if checkpoints:
            callbacks.append(deepfreeze.Checkpoint(f"{folder}/run", every=3, keep=9, verbose=0, resume_epochs=False))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.filterwarnings("ignore", ".*to which this process has trained another model")
            data = untracked_models.data(start, stop, hvd.rank())
            model.fit(data, verbose=0, shuffle=False, callbacks=callbacks)
        return untracked_models.everything(model)

    whole = fit(1 + hvd.rank(), 0, 10, checkpoints=False)
    fit(1 + hvd.rank(), 0, 6)
    resumed = fit(7 + hvd.rank(), 6, 10)
    assert whole.keys() == resumed.keys()
    return [name for name in whole if not np.array_equal(whole[name], resumed[name])]
