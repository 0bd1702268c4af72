"""Case: a training, in FOLDER/run, in which one rank knows something alone, by its engine's faults or a signal.

``flip``: the step at whose end one bit of one weight of the last rank changes; ``silent``: the step at which an object of the last rank
raises instead of giving its state; ``pause``: seconds per step; ``enough``: the training ends early, after the same step on all ranks,
when each rank's stats list at least so many steps (``{"skipped": 1}``); ``tagged``: keeps two checkpoints and those with tags; the rest
are Checkpoint's options. Returns what this rank did, and leaves it in FOLDER/agreement-R.json.
"""

import json
import time
import warnings

import models
import numpy as np

import deepfreeze
from deepfreeze.store import Latest, Tagged
from tests.support.options import grouped


def run(
    folder, steps, every, pause=0, flip=None, silent=None, steps_per_execution=1, enough=None, tagged=False, **options
):
    keras = models.framework("keras")
    import horovod.tensorflow as hvd

    hvd.init()
    rank = hvd.rank()
    optimizer = models.averaging(keras, keras.optimizers.SGD(1e-3))
    model = models.build(keras, "dense", steps_per_execution, optimizer=optimizer)

    class Reader:
        def state_at(self, step):
            if step == silent and rank == hvd.size() - 1:
                raise OSError("the reader is closed")
            return step

        def load_state_dict(self, state):
            pass

    if tagged:
        options["keep"] = Latest(2) | Tagged()
    if silent is not None:
        options["extra"] = {"reader": Reader()}
    checkpoint = deepfreeze.Checkpoint(f"{folder}/run", every=every, verbose=0, **grouped(options))
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
            if enough:
                reached = all(len(getattr(checkpoint.stats, name)) >= least for name, least in enough.items())
                self.model.stop_training = bool(hvd.allreduce(np.int32(reached), op=hvd.Min, name="reached"))

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
        "superseded": stats.superseded,
        "stopped": stats.stopped,
        "diverged": {str(step): tensor for step, tensor in stats.diverged.items()},
        "committed": sorted(stats.committed),
        "last": begun[-1],
        "error": error,
        "warnings": [str(w.message) for w in caught if issubclass(w.category, deepfreeze.CheckpointWarning)],
    }
    with open(f"{folder}/agreement-{rank}.json", "w") as f:
        json.dump(report, f)
    return report
