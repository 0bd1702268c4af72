"""Trains from where RUN is to step STEPS: gated.py RUN STEPS FOLDER WHEN EVERY. At the end of each step, before the checkpoint hears of it,
writes the step to FOLDER/ended, and holds there if it is the step in FOLDER/hold. If WHEN is "stock" there is no checkpoint, and stock
Keras saves FOLDER/STEP.weights.h5 after each step. Prints the step that it goes on from."""

import sys
import time
from pathlib import Path

import models

import deepfreeze
from tests.support import trainings


def main() -> None:
    run, steps, folder, when, every = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4], int(sys.argv[5])
    keras = models.framework("keras")
    model = models.build(keras, "dense")

    class Gate(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            step = trainings.count(model.optimizer)
            (folder / "ended").write_text(str(step))
            while (folder / "hold").exists() and (folder / "hold").read_text() == str(step):
                time.sleep(0.01)

    start = 0
    if when == "stock":
        callback = trainings.save_weights(keras, folder)
    else:
        callback = deepfreeze.Checkpoint(run, every=every, keep=100, capture=deepfreeze.Capture(when=when))
        start = callback.open(model)
    print(f"from step {start}", flush=True)
    model.fit(models.batches(steps - start, start), verbose=0, shuffle=False, callbacks=[Gate(), callback])


main()
