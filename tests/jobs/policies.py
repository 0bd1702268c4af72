"""Case: a training, in FOLDER/run, with a policy of deepfreeze.plan.

``every``: the policy as Python's expression, in which ``rank`` is this rank; ``named``: the policy's text, where it is not the same on all
ranks; ``signals``: by rank, the steps in which it gets SIGUSR1; ``loop``: a hand-written loop instead of ``fit``; ``pause``: seconds in
each step; ``slower``: by rank, seconds by which every fifth step takes longer there; ``ends_in``: seconds until the job ends, by rank;
``tuned``: training ends ten steps after a ``Budget`` has an interval; ``engine``: options of ``Engine``.
Returns what this rank has saved, the intervals that the ranks have agreed on, and the setting of a ``Budget``.
"""

import os
import signal
import time

import models
import tensorflow as tf

import deepfreeze
import deepfreeze.plan.budget
from deepfreeze import plan


def run(
    folder,
    every,
    named=None,
    signals=None,
    loop=False,
    pause=0,
    slower=None,
    batches=12,
    epochs=1,
    ends_in=None,
    tuned=False,
    engine=None,
):
    keras = models.framework("keras")
    import horovod.tensorflow as hvd

    hvd.init()
    rank = hvd.rank()
    policy = eval(every, vars(plan) | {"rank": rank})
    if named:
        type_ = type(policy)
        policy = type(type_.__name__, (type_,), {"__str__": lambda self: named})(policy.seconds)
    optimizer = models.averaging(keras, keras.optimizers.SGD(1e-3))
    model = models.build(keras, "dense", 1, optimizer=optimizer)
    heard = set((signals or {}).get(str(rank), ()))

    def step_ended():
        if int(optimizer.iterations.numpy()) in heard:
            os.kill(os.getpid(), signal.SIGUSR1)
        late = int(optimizer.iterations.numpy()) % 5 == 0
        time.sleep(pause + ((slower or {}).get(str(rank), 0) if late else 0))

    class Beside(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            step_ended()
            if tuned and policy.interval:
                since.append(batch)
                model.stop_training = len(since) > 10

    since = []
    if tuned:
        # A busy machine neither ends the search, nor has a trial repeated: a test's faults are at counted checkpoints.
        plan.budget._SPARE, plan.budget._REPEATS = 1.0, 0
    options = {"keep": 99, "verbose": 0, "final": False, "wait_for": "external"}
    if tuned:
        options |= {"wait_for": "captured", "local": None, "engine": deepfreeze.Engine(**engine)}
    if ends_in:
        options["ends_at"] = time.time() + ends_in[rank]
    error, checkpoint = None, None
    try:
        if loop:
            with deepfreeze.capture(optimizer, model, f"{folder}/run", policy, **options) as checkpoint:
                for x, y in models.batches(batches):
                    with tf.GradientTape() as tape:
                        loss = tf.reduce_mean((model(x) - y) ** 2)
                    variables = model.trainable_variables
                    optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
                    step_ended()
                    if not checkpoint.step():
                        break
        else:
            checkpoint = deepfreeze.Checkpoint(f"{folder}/run", policy, **options)
            callbacks = [deepfreeze.BroadcastState(), Beside(), checkpoint]
            model.fit(models.batches(batches), epochs=epochs, verbose=0, shuffle=False, callbacks=callbacks)
    except deepfreeze.Error as found:
        error = f"{type(found).__name__}: {found}"
    stats = checkpoint.stats
    saved = {"steps": stats.steps, "committed": list(stats.committed), "intervals": stats.intervals}
    setting = vars(policy.setting) if tuned else None
    return saved | {"stopped": stats.stopped, "error": error, "setting": setting}
