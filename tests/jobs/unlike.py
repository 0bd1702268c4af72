"""Case: rank 1 asks for something else, by one option. Returns each rank's error."""

import models

import deepfreeze
from tests.support.options import grouped


def run(folder, option, other):
    keras = models.framework("keras")
    import horovod.tensorflow as hvd

    hvd.init()
    model = models.build(keras, "dense", optimizer=models.averaging(keras, keras.optimizers.Adam(1e-3)))
    own = grouped({option: other}) if hvd.rank() == 1 else {}
    try:
        deepfreeze.Checkpoint(**{"run": f"{folder}/run", "timeout": 60, **own}).open(model)
    except deepfreeze.Error as error:
        return f"{type(error).__name__}: {error}"
    return None
