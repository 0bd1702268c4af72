"""Trains every kind of model with a Checkpoint: freeze.py API FOLDER STEPS EVERY STEPS_PER_EXECUTION CAPTURE."""

import sys

import models

import deepfreeze


def main() -> None:
    api, folder, steps, every, per_execution = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6])
    capture = sys.argv[6]
    keras = models.framework(api)
    for kind in models.KINDS:
        model = models.build(keras, kind, per_execution)
        checkpoint = deepfreeze.Checkpoint(
            f"{folder}/{kind}-{per_execution}", every=every, keep=100, capture=deepfreeze.Capture(path=capture)
        )
        model.fit(models.batches(steps), verbose=0, shuffle=False, callbacks=[checkpoint])


main()
