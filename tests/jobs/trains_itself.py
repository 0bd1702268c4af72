"""A training of a model that trains itself: trains_itself.py API RUN KIND KILLED_AT. Trains eight batches, or what is left of them. It
is killed behind batch KILLED_AT, if that is not 0. Prints a checksum of the final training state."""

import os
import signal
import sys
import zlib

import models
import numpy as np

import deepfreeze
from deepfreeze.state.training_state import METRIC, TrainingState
from tests.support import own_steps, trainings


def main() -> None:
    api, run, kind, killed_at = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
    keras = models.framework(api)
    model = trainings.alike(keras, lambda: (own_steps.DISTILLERS | own_steps.GANS)[kind](keras))
    options = own_steps.counting(model)
    checkpoint = deepfreeze.Checkpoint(run, every=1, keep=100, wait_for="external", verbose=0, **options)
    found = deepfreeze.latest(run).step if os.path.exists(run) else 0

    class Killed(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch + 1 == killed_at:
                os.kill(os.getpid(), signal.SIGKILL)

    model.fit(trainings.data(8).skip(found), verbose=0, shuffle=False, callbacks=[checkpoint, Killed()])
    values = [np.asarray(t.variable).tobytes() for t in TrainingState.of(model).tensors if t.kind != METRIC]
    print(f"after {found}: {zlib.crc32(b''.join(values)):08x}")


main()
