"""A rank of a Horovod job in which rank 1 asks for something else: unlike.py FOLDER OPTION VALUE. Prints each rank's error."""

import json
import sys

import models

import deepfreeze


def main() -> None:
    folder, option, other = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    keras = models.framework("keras")
    import horovod.tensorflow as hvd

    hvd.init()
    model = models.build(keras, "dense", optimizer=models.averaging(keras, keras.optimizers.Adam(1e-3)))
    own = {option: other} if hvd.rank() == 1 else {}
    try:
        deepfreeze.Checkpoint(**{"run": f"{folder}/run", "timeout": 60, **own}).open(model)
    except deepfreeze.Error as error:
        print(f"rank {hvd.rank()} says: {type(error).__name__}: {error}", flush=True)


main()
