"""A rank of a Horovod training in which one rank knows something alone: agreement.py FOLDER STEPS EVERY [KEY=VALUE ...].

Options are Checkpoint's, plus: fault=PLAN of the engine of faulty=RANK, flip=STEP (one bit of one weight, on the last rank, when
that step ends), alone=1 (every rank decides by itself, as if there were no control word), pause=S (seconds per step).
FOLDER/agreement-R.json gets what this rank did, FOLDER/pid-R its process.
"""

import json
import os
import sys
import time
import warnings

import models
import numpy as np
from ranks import value

import deepfreeze
from deepfreeze.core.world import HorovodWorld


def main() -> None:
    folder, steps, every = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    options = {name: value(text) for name, text in (pair.split("=", 1) for pair in sys.argv[4:])}
    pause, flip = options.pop("pause", 0), options.pop("flip", None)
    fault, faulty = options.pop("fault", ""), options.pop("faulty", -1)
    keras = models.framework("keras")
    import horovod.tensorflow as hvd

    hvd.init()
    rank = hvd.rank()
    if rank == faulty:
        os.environ["DEEPFREEZE_FAULT"] = fault
    if options.pop("alone", 0):
        HorovodWorld.maximum = lambda self, values: values
        HorovodWorld.in_graph = False
    with open(f"{folder}/pid-{rank}", "w") as f:
        f.write(str(os.getpid()))
    optimizer = models.averaging(keras, keras.optimizers.SGD(1e-3))
    model = models.build(keras, "dense", int(options.pop("steps_per_execution", 1)), optimizer=optimizer)
    checkpoint = deepfreeze.Checkpoint(f"{folder}/run", every=every, verbose=0, **options)
    begun = []

    class Beside(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            step = int(model.optimizer.iterations.numpy())
            begun.append(step)
            if step == flip and rank == hvd.size() - 1:
                kernel = model.layers[2].kernel
                array = np.array(kernel)
                array.view(np.uint32)[0, 0] ^= 1 << 20
                kernel.assign(array)
            time.sleep(pause)

    warnings.simplefilter("always")
    error = None
    with warnings.catch_warnings(record=True) as caught:
        try:
            model.fit(
                models.batches(steps),
                verbose=0,
                shuffle=False,
                callbacks=[deepfreeze.BroadcastState(), Beside(), checkpoint],
            )
        except deepfreeze.Error as found:
            error = f"{type(found).__name__}: {found}"
    stats = checkpoint.stats
    report = {
        "steps": stats.steps,
        "skipped": stats.skipped,
        "stopped": stats.stopped,
        "diverged": {str(step): tensor for step, tensor in stats.diverged.items()},
        "committed": sorted(stats.committed),
        "last": begun[-1],
        "error": error,
        "warnings": [str(w.message) for w in caught if issubclass(w.category, deepfreeze.CheckpointWarning)],
    }
    with open(f"{folder}/agreement-{rank}.json", "w") as f:
        json.dump(report, f)


if __name__ == "__main__":
    main()
