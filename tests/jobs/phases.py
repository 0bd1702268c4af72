"""Case: two ranks train a model, and then go on in a way that would lose checkpoints. Each rank returns the names of the errors that it
gets, with what they have found, in the order of the ways."""

import importlib
import os

import deepfreeze
from tests.support import trainings


def run(api, folder):
    keras = importlib.import_module(api)
    import horovod.tensorflow as hvd
    import models

    hvd.init()

    class Changes(keras.callbacks.Callback):
        """Changes something after the second batch."""

        def __init__(self, change):
            super().__init__()
            self.change = change

        def on_train_batch_end(self, batch, logs=None):
            if batch == 1:
                self.change(self.model)

    def averaging():
        return models.averaging(keras, keras.optimizers.Adam())

    def anew(model):
        model.compile(averaging(), "mse", jit_compile=False)
        made = model.make_train_function(force=True)
        if made is not None:
            model.train_function = made

    def set_back(model):
        if hvd.rank() == 0:
            model.optimizer.iterations.assign(0)

    between = {"phase": lambda model: model.compile(averaging(), "mse", jit_compile=False), "back": set_back}
    within = {"anew": anew, "set": set_back}
    found = []
    for name in [*between, *within]:
        model = trainings.dense(keras, averaging())
        checkpoint = deepfreeze.Checkpoint(f"{folder}/{name}", every=1, keep=9, verbose=0)
        try:
            callbacks = [Changes(within[name])] if name in within else []
            model.fit(trainings.data(4), verbose=0, callbacks=[*callbacks, checkpoint])
            between[name](model)
            model.fit(trainings.data(2), verbose=0, callbacks=[checkpoint])
            found.append("no error")
        except deepfreeze.Error as error:
            found.append(f"{type(error).__name__}: {error.found}")
        checkpoint.close()
        assert not os.path.exists(f"{folder}/{name}/abandoned")
    return found
