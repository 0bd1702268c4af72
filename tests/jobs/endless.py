"""Trains until it is interrupted: endless.py RUN EVERY. Prints the steps captured, as JSON, whatever ends it."""

import itertools
import json
import signal
import sys

import deepfreeze
from tests.support import trainings


def main() -> None:
    run, every = sys.argv[1], int(sys.argv[2])
    import keras

    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs are started without it
    checkpoint = deepfreeze.Checkpoint(run, every=every)
    model = trainings.dense(keras)
    x, y = next(iter(trainings.data(1)))
    try:
        batches = ((x, y) for _ in itertools.count())
        model.fit(batches, steps_per_epoch=10**9, verbose=0, callbacks=[checkpoint])
    finally:
        print(f"captured: {json.dumps(checkpoint.stats.steps)}", flush=True)


main()
