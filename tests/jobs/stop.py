"""Trains every kind of model without DeepFreeze and stops at given steps: stop.py API FOLDER STEP [STEP ...]."""

import sys

import models
import numpy as np


def main() -> None:
    api, folder, *steps = sys.argv[1:]
    keras = models.framework(api)
    for kind in models.KINDS:
        for step in map(int, steps):
            model = models.build(keras, kind)
            model.fit(models.batches(step), verbose=0, shuffle=False)
            model.save_weights(f"{folder}/{kind}-{step}.weights.h5")
            np.savez(f"{folder}/{kind}-{step}.npz", *models.seeds(model))
    assert "deepfreeze" not in sys.modules


main()
