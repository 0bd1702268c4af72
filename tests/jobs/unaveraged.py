"""Case: Horovod ranks, with an optimizer that averages their gradients or without. Returns each rank's warnings, and its error."""

import logging

import models
import numpy as np

import deepfreeze
from deepfreeze.process_state import PROCESS


def run(api, folder, averaged):
    keras = models.framework(api)
    import horovod.tensorflow as hvd

    hvd.init()
    told, handler = [], logging.Handler()
    PROCESS.warned.clear()  # these processes have trained other models before
    handler.emit = lambda record: told.append(record.getMessage())
    logging.getLogger("deepfreeze").addHandler(handler)
    optimizer = keras.optimizers.Adam(1e-3)
    model = models.build(keras, "dense", optimizer=models.averaging(keras, optimizer) if averaged else optimizer)
    draw = np.random.default_rng(hvd.rank())
    x, y = draw.random((8, 16, 8), np.float32), draw.random((8, 3), np.float32)
    checkpoint = deepfreeze.Checkpoint(f"{folder}/run", every=1, timeout=60)
    try:
        model.fit(x, y, batch_size=2, verbose=0, callbacks=[checkpoint])
    except deepfreeze.Error as error:
        return told, f"{type(error).__name__}: {error}"
    finally:
        logging.getLogger("deepfreeze").removeHandler(handler)
    return told, None
