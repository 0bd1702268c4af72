"""Case: a model with a Normalization that the program which trains first has adapted, and the one that goes on has not. Returns what is
wrong on this rank, and the warnings of vocabularies that it has given."""

import importlib
import logging

import models
import numpy as np

import deepfreeze
from tests.support import overriding


def run(api, folder):
    keras = importlib.import_module(api)
    import horovod.tensorflow as hvd
    import tensorflow as tf

    hvd.init()
    warnings = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: warnings.append(record.getMessage())
    logging.getLogger("deepfreeze").addHandler(handler)
    x, y = overriding.NUMBERS, np.arange(6, dtype="float32")[:, None]

    def make(adapts, words=overriding.WORDS):
        keras.utils.set_random_seed(1 if adapts else 2)
        layer = keras.layers.Normalization()
        model = keras.Sequential([keras.Input((3,)), layer, keras.layers.Dense(1)])
        if adapts:
            layer.adapt(x)
        model.words = keras.layers.StringLookup(vocabulary=words, name="words")
        model.compile(models.averaging(keras, keras.optimizers.Adam(1e-2)), "mse", jit_compile=False)
        return model

    def fit(model, *callbacks):
        data = tf.data.Dataset.from_tensors((x, y)).repeat(2)
        model.fit(data, verbose=0, shuffle=False, callbacks=list(callbacks))
        return model.predict(x, verbose=0)

    def saving():
        return deepfreeze.Checkpoint(f"{folder}/run", every=2, verbose=0)

    wrong = []
    whole = make(True)
    fit(whole)
    after_4 = fit(whole)
    fit(make(True), saving())
    if not np.allclose(fit(make(False), saving()), after_4, rtol=1e-5):
        wrong.append("resumed")
    # Rank 0 alone adapts; the others get its variables, and have predicted without before.
    model = make(hvd.rank() == 0)
    model.predict(x, verbose=0)
    after_2 = fit(model, deepfreeze.BroadcastState())
    if not np.allclose(hvd.broadcast(after_2, 0), after_2, rtol=1e-5) or not np.abs(after_2).max() < 100:
        wrong.append("broadcast")
    if any("vocabulary" in one for one in warnings):
        wrong.append("a warning without a reason")
    words = overriding.WORDS[:: -1 if hvd.rank() else 1]
    fit(make(True, words), deepfreeze.BroadcastState(), saving())
    logging.getLogger("deepfreeze").removeHandler(handler)
    return wrong, [one for one in warnings if "vocabulary" in one]
