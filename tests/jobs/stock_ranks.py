"""Case: what tests/jobs/ranks.py trains, without a Checkpoint. After each step stock Keras saves FOLDER/stock-R/STEP.weights.h5 on each
rank R; FOLDER/stock-R/STEP.npz gets the states of its random layers, which Keras does not save."""

from pathlib import Path

import models
import numpy as np
from ranks import prepared

from tests.support import trainings


def run(api, folder, steps, kind="conv", passes=1):
    keras, hvd, model, broadcast = prepared(api, kind, passes)
    own = Path(folder) / f"stock-{hvd.rank()}"
    own.mkdir()

    class SaveSeeds(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if (batch + 1) % passes == 0:
                np.savez(own / f"{(batch + 1) // passes}.npz", *models.seeds(model))

    callbacks = [broadcast] if models.is_keras_2(keras) else []
    if not callbacks:  # Horovod's callback is of Keras 2, its function of both
        hvd.broadcast_variables([weight.value for weight in model.weights], 0)
    callbacks += [trainings.save_weights(keras, own), SaveSeeds()]
    model.fit(models.batches(steps * passes, 0, hvd.rank()), verbose=0, shuffle=False, callbacks=callbacks)
