"""Trainings one after the other, each in a child of this process: TensorFlow is imported once for all of them, and each may be killed. For
each line of standard input, a JSON object with the arguments of ``train``, the line ``pid PID`` comes on standard output, and the line
``ended CODE`` when that child is dead; CODE is that of ``subprocess``: negative for one that a signal has killed. With a member ``call``,
MODULE:TEST, the child runs the body of that test instead (tests/support/lives.py)."""

import gc
import importlib
import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import keras
import numpy as np
import tensorflow as tf

import deepfreeze
import deepfreeze.training.training  # the parts that the first training would import
from deepfreeze.plan import Budget
from tests.support import faults
from tests.support.child import die_with_parent
from tests.support.options import grouped

FOREVER = 10**9  # steps


def train(run: str, notes: str, pause: float, fault: str, budget: float | None = None, **options: object) -> None:
    """Trains until it is killed, and appends lines to the file ``notes``: ``resumed STEP`` when training begins, and ``step STEP`` at the
    end of each step, which takes ``pause`` seconds at least. ``fault``: the engine's plan of faults; ``options``: of Checkpoint;
    ``budget``: ``every`` is that ``Budget``, and training ends by itself when it has an interval and ten more steps are done."""
    faults.plan(fault)
    file = os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(64), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.01), "mse")

    policy = None if budget is None else Budget(budget)
    if policy is not None:
        options["every"] = policy
    over = []  # steps since there is an interval

    def note(name: str) -> None:
        os.write(file, f"{name} {int(model.optimizer.iterations.numpy())} {time.monotonic()!r}\n".encode())

    class Before(keras.callbacks.Callback):
        """Comes before the checkpoint's callback, which hears of a step when it is noted."""

        def on_train_batch_end(self, batch: int, logs: object = None) -> None:
            time.sleep(pause)
            note("step")
            if policy is not None and policy.interval:
                over.append(batch)
                model.stop_training = len(over) > 10

    class After(keras.callbacks.Callback):
        """Comes after the checkpoint's callback, which has restored the model then."""

        def on_train_begin(self, logs: object = None) -> None:
            note("resumed")

    batch = (np.zeros((4, 8), np.float32), np.zeros((4, 1), np.float32))
    callbacks = [Before(), deepfreeze.Checkpoint(run, **grouped(options)), After()]
    model.fit(
        tf.data.Dataset.from_tensors(batch).repeat(), steps_per_epoch=FOREVER, epochs=1, verbose=0, callbacks=callbacks
    )


def live(arguments: dict[str, Any]) -> None:
    """What a child does."""
    if (test := arguments.pop("call", None)) is None:
        train(**arguments)
        return
    module, _, name = test.partition(":")
    getattr(importlib.import_module(module), name).__wrapped__(**arguments)


def main() -> None:
    threads = os.listdir("/proc/self/task")
    if len(threads) > 1:
        sys.exit(f"{len(threads)} threads: a child would have one of them alone, and TensorFlow must not have begun")
    gc.freeze()  # collecting garbage in a child would copy the parent's pages
    for line in sys.stdin:
        parent, child = os.getpid(), os.fork()
        if child == 0:
            die_with_parent(parent)
            code = 1
            try:
                live(json.loads(line))
                code = 0
            except BaseException:
                traceback.print_exc()
            sys.stderr.flush()
            os._exit(code)
        print(f"pid {child}", flush=True)
        _, status = os.waitpid(child, 0)
        print(f"ended {os.waitstatus_to_exitcode(status)}", flush=True)


main()
