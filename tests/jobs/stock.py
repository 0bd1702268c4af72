"""Trains every kind of model without DeepFreeze, and has Keras save it after given steps: stock.py API FOLDER STEP [STEP ...]."""

import sys

import models
import numpy as np


def main() -> None:
    api, folder, *steps = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
    keras = models.framework(api)

    class Save(keras.callbacks.Callback):
        def __init__(self, kind):
            super().__init__()
            self.kind = kind

        def on_train_batch_end(self, batch, logs=None):
            if batch + 1 in steps:
                self.model.save_weights(f"{folder}/{self.kind}-{batch + 1}.weights.h5")
                np.savez(f"{folder}/{self.kind}-{batch + 1}.npz", *models.seeds(self.model))

    for kind in models.KINDS:
        models.build(keras, kind).fit(models.batches(steps[-1]), verbose=0, shuffle=False, callbacks=[Save(kind)])
    assert "deepfreeze" not in sys.modules


main()
