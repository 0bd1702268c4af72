"""A rank of a Horovod job: ranks.py API FOLDER STEPS EVERY [KEY=VALUE ...]. Trains, then writes what it holds.

FOLDER/run is the run; FOLDER/rank-R.npz gets this rank's saved tensors by dataset path (and seeds), FOLDER/rank-R.json its
stats. Options are Checkpoint's, plus batch (of random numbers for the pause), pause=S (seconds per step) and launch=alone.
"""

import json
import os
import sys
import time

import models
import numpy as np

import deepfreeze


def value(text: str):
    try:
        return json.loads(text)
    except ValueError:
        return text


def main() -> None:
    api, folder, steps, every = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    options = dict(pair.split("=", 1) for pair in sys.argv[5:])
    options = {name: value(text) for name, text in options.items()}
    pause, kind, out = options.pop("pause", 0), options.pop("kind", "conv"), options.pop("out", folder)
    keras = models.framework(api)
    if models.is_keras_2(keras):
        import horovod.tensorflow.keras as hvd
    else:
        import horovod.tensorflow as hvd
    hvd.init()
    rank = hvd.rank()
    with open(f"{out}/pid-{rank}", "w") as f:
        f.write(str(os.getpid()))
    if models.is_keras_2(keras):
        # Horovod's own optimizer and callbacks work with ours.
        optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(1e-3))
        broadcast = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    else:
        optimizer = deepfreeze.DistributedOptimizer(keras.optimizers.Adam(1e-3))
        broadcast = deepfreeze.BroadcastState()
    model = models.build(keras, kind, optimizer=optimizer, seed=1 + rank)
    if rank == options.pop("bad_rank", None):
        model.optimizer = None  # refused
    checkpoint = deepfreeze.Checkpoint(f"{folder}/run", every=every, **options)
    start = checkpoint.open(model)

    class Pause(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            time.sleep(pause)

    if start < steps:
        batches = models.batches(steps - start, start, rank)
        model.fit(batches, verbose=0, shuffle=False, callbacks=[broadcast, checkpoint, Pause()])
    else:
        checkpoint.close()

    from deepfreeze.core.layout_probe import probe

    held = {slot.path: np.asarray(slot.variable) for slot in probe(model)}
    np.savez(f"{out}/rank-{rank}.npz", **held)
    stats = checkpoint.stats
    with open(f"{out}/rank-{rank}.json", "w") as f:
        report = {"resumed": stats.resumed, "steps": stats.steps, "nbytes": stats.nbytes, "start": start}
        json.dump({**report, "committed": sorted(stats.committed)}, f)


if __name__ == "__main__":
    main()
