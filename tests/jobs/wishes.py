"""Case: a training, in FOLDER/run, whose policy learns, and wishes for other intervals on each rank.

``wishes``: for each rank, step -> the interval that this rank wishes for from then on; ``fails``: the rank whose policy raises after step
6, or None; ``loop``: a hand-written loop instead of ``fit``; ``every``: the interval until the ranks agree on another. Returns the steps
that this rank captured, the decisions, the error, and the last step.
"""

import models
import tensorflow as tf

import deepfreeze
from deepfreeze.events import Decision
from deepfreeze.plan import Wish


class Wishing:
    """Multiples of an interval, counted from the step where the interval was agreed on."""

    def __init__(self, interval, wishes, fails):
        self.interval, self.begin, self.wishes, self.fails = interval, 0, wishes, fails
        self.wish, self.seen = 0, []

    def __str__(self):
        return "wishing"

    def next_step(self, step):
        if step < self.begin:
            return self.begin
        return self.begin + ((step - self.begin) // self.interval + 1) * self.interval

    def observe(self, observation):
        self.seen.append(observation)
        if self.fails and observation.step == 6:
            raise ValueError("no idea")
        self.wish = self.wishes.get(observation.step, self.wish)
        return Wish(self.wish)

    def agree(self, wish, step):
        self.interval, self.begin = wish, step


def run(folder, steps, wishes, every=4, fails=None, loop=False):
    import horovod.tensorflow as hvd

    hvd.init()
    rank = hvd.rank()
    policy = Wishing(every, {int(step): wish for step, wish in wishes[rank].items()}, fails == rank)
    return {**train(folder, steps, policy, loop), "seen": len(policy.seen)}


def train(folder, steps, policy, loop=False, **options):
    """Trains on this rank with ``policy`` and ``options``; see above. Needs ``hvd.init()``."""
    keras = models.framework("keras")
    optimizer = models.averaging(keras, keras.optimizers.SGD(1e-3))
    model = models.build(keras, "dense", 1, optimizer=optimizer)
    decisions, error, last = [], None, 0

    def listen(event):
        if isinstance(event, Decision):
            decisions.append((event.step, event.before, event.after))

    options |= {"every": policy, "keep": 99, "verbose": 0, "final": False, "listeners": [listen]}
    try:
        if loop:
            with deepfreeze.capture(optimizer, model, f"{folder}/run", **options) as checkpoint:
                for x, y in models.batches(steps):
                    with tf.GradientTape() as tape:
                        loss = tf.reduce_mean((model(x) - y) ** 2)
                    variables = model.trainable_variables
                    optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
                    checkpoint.step()
        else:
            checkpoint = deepfreeze.Checkpoint(f"{folder}/run", **options)
            callbacks = [deepfreeze.BroadcastState(), checkpoint]
            model.fit(models.batches(steps), verbose=0, shuffle=False, callbacks=callbacks)
    except deepfreeze.Error as found:
        error = f"{type(found).__name__}: {found}"
    last = int(optimizer.iterations.numpy())
    captured = checkpoint.stats.steps
    return {"steps": captured, "decisions": decisions, "error": error, "last": last}
