"""Case: trains to step STEPS, in FOLDER/run, and leaves what each rank R holds then, by dataset path, in OUT/rank-R.npz.

``pause``: seconds per step; ``bad_rank``: of a model whose optimizer Keras can't save; ``stripe``: bytes of the store's stripes, which
rank 0 alone finds; ``passes``: batches for each update; ``asked``: the ranks whose ``run`` is a function; the rest are Checkpoint's
options. Returns its stats, the warnings, also those in the log, and the steps that were left to the next one and copied by it.
"""

import logging
import time
import types
import warnings
from unittest import mock

import models
import numpy as np

import deepfreeze
from deepfreeze.store import Granules
from deepfreeze.store.posix_store import PosixStore
from tests.support import late
from tests.support.options import grouped


def prepared(api, kind, passes=1):
    """(Keras, Horovod, a model that has weights of its own on each rank, the callback that makes them equal). ``passes``: batches for
    each update."""
    keras = models.framework(api)
    if models.is_keras_2(keras):
        import horovod.tensorflow.keras as hvd
    else:
        import horovod.tensorflow as hvd
    hvd.init()
    if models.is_keras_2(keras):
        # Horovod's own optimizer and callbacks work with ours.
        optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(1e-3), backward_passes_per_step=passes)
        broadcast = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    else:
        accumulates = {"gradient_accumulation_steps": passes} if passes > 1 else {}
        optimizer = deepfreeze.DistributedOptimizer(keras.optimizers.Adam(1e-3, **accumulates))
        broadcast = deepfreeze.BroadcastState()
    return keras, hvd, models.build(keras, kind, optimizer=optimizer, seed=1 + hvd.rank()), broadcast


def run(
    api, folder, steps, every, kind="conv", pause=0, out=None, bad_rank=None, stripe=None, passes=1, asked=(), **options
):
    keras, hvd, model, broadcast = prepared(api, kind, passes)
    rank = hvd.rank()
    if rank == bad_rank:
        model.optimizer = types.SimpleNamespace(iterations=0, apply_gradients=None)  # refused: without ``build``

    def ask():
        assert rank == 0, "another rank than rank 0 was asked"
        return f"{folder}/run"

    path = ask if rank in asked else f"{folder}/run"
    checkpoint = deepfreeze.Checkpoint(path, every=every, **grouped(options))

    class Pause(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            time.sleep(pause)

    logged = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: logged.append(record.getMessage())
    logging.getLogger("deepfreeze").addHandler(handler)
    granules = Granules(stripe=stripe if rank == 0 else None)
    with (
        warnings.catch_warnings(record=True) as caught,
        mock.patch.object(PosixStore, "granules", lambda store: granules),
        late.noted() as left,
    ):
        warnings.simplefilter("always")
        start = checkpoint.open(model)
        if start < steps:
            batches = models.batches((steps - start) * passes, start * passes, rank)
            model.fit(batches, verbose=0, shuffle=False, callbacks=[broadcast, checkpoint, Pause()])
        else:
            checkpoint.close()

    from tests.support.state import tensors

    held = {tensor.path: np.asarray(tensor.variable) for tensor in tensors(model)}
    np.savez(f"{out or folder}/rank-{rank}.npz", **held)
    logging.getLogger("deepfreeze").removeHandler(handler)
    stats = checkpoint.stats
    return {
        "resumed": stats.resumed,
        "nbytes": stats.nbytes,
        "committed": sorted(stats.committed),
        "warnings": [str(w.message) for w in caught if issubclass(w.category, deepfreeze.CheckpointWarning)],
        "logged": logged,
        "late": [step for step, copied in left if copied],
    }
