"""Case: ranks that are no replicas, one training of CASES after the other.

One of them is WAY:DIFFERENCE[:KEY=VALUE ...]. WAY: broadcast (fit, with BroadcastState first), fit, open, or loop (deepfreeze.capture).
DIFFERENCE, of rank 1: units, layer, optimizer, dtype (of another model), seed (other weights), names (that Keras has
counted on by), or none. Options are Checkpoint's,
plus: rank1=NAME (rank 1 has 7 for that option), comm=self (a communicator of this rank alone), run=NAME (of another case),
pause=STEP (fit waits a second after that step, before the callback hears of it), wrap=false (an optimizer that averages nothing).
``world``: "mpi" takes mpi4py's ranks in place of Horovod's, "both" has both. FOLDER/CASE-R.json gets the error's parts, the
warnings, the step reached, and whether the model is as it was; each has a run of its own, FOLDER/CASE.
"""

import json
import os
import time
import warnings

import models
import numpy as np

import deepfreeze
from deepfreeze.process_state import PROCESS
from tests.support.options import grouped


def value(text):
    try:
        return json.loads(text)
    except ValueError:
        return text


def build(keras, difference, rank, averaging):
    other = difference if rank == 1 else ""
    keras.backend.clear_session()  # what it has counted: the cases before
    if other == "names":
        keras.Sequential([keras.Input((4,)), keras.layers.Dense(2), keras.layers.Dense(2)])
    keras.utils.set_random_seed(1 + (other == "seed"))
    layers = [keras.layers.Dense(12 if other == "units" else 8, "relu")]
    layers += [keras.layers.Dense(8)] if other == "layer" else []
    inputs = [keras.Input((16, 8)), keras.layers.Flatten()]
    dtype = "float64" if other == "dtype" else "float32"
    model = keras.Sequential([*inputs, *layers, keras.layers.Dense(3, dtype=dtype)])
    optimizer = keras.optimizers.SGD(1e-3) if other == "optimizer" else keras.optimizers.Adam(1e-3)
    model.compile(models.averaging(keras, optimizer) if averaging else optimizer, "mse", jit_compile=False)
    return model


def train(keras, way, model, run, options, pause, steps=4):
    batches = models.batches(steps)
    if way == "open":
        checkpoint = deepfreeze.Checkpoint(run, **options)
        checkpoint.open(model)
        return checkpoint
    if way == "loop":
        import tensorflow as tf

        with deepfreeze.capture(model.optimizer, model, run, **options) as checkpoint:
            for x, y in batches:
                with tf.GradientTape() as tape:
                    loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
                weights = model.trainable_variables
                model.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
                checkpoint.step()
    else:
        before = [deepfreeze.BroadcastState()] if way == "broadcast" else []
        late = lambda batch, logs: time.sleep(1.0 if batch + 1 == pause else 0.0)  # noqa: E731
        before += [keras.callbacks.LambdaCallback(on_train_batch_end=late)]
        model.fit(batches, verbose=0, shuffle=False, callbacks=[*before, deepfreeze.Checkpoint(run, **options)])
    return None


def report(case, keras, folder, rank, comm, averaging):
    way, difference, *pairs = case.split(":")
    options = {
        "every": 1,
        "timeout": 60,
        **{name: value(text) for name, text in (pair.split("=", 1) for pair in pairs)},
    }
    pause = options.pop("pause", 0)
    run, alone = options.pop("run", case), options.pop("comm", None) == "self"
    if (own := options.pop("rank1", None)) is not None and rank == 1:
        options[own] = 7
    if comm is not None:
        options["world"] = comm.Split(rank) if alone else comm
    options = grouped(options)
    model = build(keras, difference, rank, averaging and options.pop("wrap", True))
    PROCESS.trained_models.clear()  # each case is a job of its own, which may go on in the run of the last one
    before, begun = [np.array(v) for v in model.weights], time.monotonic()
    error = held = None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            held = train(keras, way, model, f"{folder}/{run}", options, pause)
        except deepfreeze.Error as found:
            error = {part: getattr(found, part) for part in ("where", "expected", "found", "todo")}
            error |= {"kind": type(found).__name__, "text": str(found)}
    if comm is not None:
        comm.Barrier()  # until the other has tried
    if held is not None:
        held.close()
    ours = [str(w.message) for w in caught if issubclass(w.category, deepfreeze.CheckpointWarning)]
    after = [np.array(v) for v in model.weights]
    same = all(a.tobytes() == b.tobytes() for a, b in zip(before, after, strict=True))
    step = int(np.asarray(model.optimizer.iterations))
    seconds = time.monotonic() - begun
    return {"error": error, "warnings": ours, "step": step, "unchanged": same, "seconds": seconds}


def run(api, folder, cases, world="horovod"):
    keras = models.framework(api)
    comm = None
    if world != "horovod":
        from mpi4py import MPI

        comm = MPI.COMM_WORLD
        rank = comm.Get_rank()
    if world != "mpi":
        import horovod.tensorflow as hvd

        hvd.init()
        rank = hvd.rank()
    for case in cases:
        found = report(case, keras, folder, rank, comm, averaging=comm is None)
        with open(os.path.join(folder, f"{case}-{rank}.json"), "w") as f:
            json.dump(found, f)
