"""Case: two ranks train a model in two fits. In between the model of rank 1 gets a ``train_step`` of its own, so that the captures of the
first fit serve rank 0 alone. At last rank 0 compiles its model anew and trains it by itself."""

import importlib

import deepfreeze
from tests.support import trainings


def run(api, folder):
    keras = importlib.import_module(api)
    import horovod.tensorflow as hvd
    import models

    hvd.init()
    model = trainings.dense(keras, models.averaging(keras, keras.optimizers.Adam()))
    checkpoint = deepfreeze.Checkpoint(f"{folder}/run", every=2, keep=9)
    fit = {"x": trainings.data(3), "verbose": 0, "callbacks": [checkpoint]}
    model.fit(**fit)
    if hvd.rank() == 1:
        inner = type(model).train_step.__get__(model)
        model.train_step = lambda *args: inner(*args)
    model.fit(**fit)
    if hvd.rank() == 0:
        model.save_weights(f"{folder}/6.weights.h5")
        model.compile("sgd", "mse", jit_compile=False)
        model.fit(trainings.data(2), verbose=0)
    return trainings.count(model.optimizer)
