"""Trains every kind of model with a Checkpoint: freeze.py API FOLDER STEPS EVERY STEPS_PER_EXECUTION."""

import sys

import models

import deepfreeze


def main() -> None:
    api, folder, steps, every, per_execution = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6])
    keras = models.framework(api)
    for kind in models.KINDS:
        for capture in ("auto", "graph"):
            model = models.build(keras, kind, per_execution)
            run = f"{folder}/{kind}-{per_execution}-{capture}"
            checkpoint = deepfreeze.Checkpoint(run, every=every, keep=100, capture=capture)
            model.fit(models.batches(steps), verbose=0, shuffle=False, callbacks=[checkpoint])
            print(kind, per_execution, capture, checkpoint.stats.steps)


main()
