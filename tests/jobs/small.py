"""One small training: small.py RUN STEPS [KEY=VALUE ...]. Prints a JSON line: the warnings, the error, and what else there is to say.

Options are Checkpoint's, plus: pause=S (seconds, at the end of each step, before the checkpoint hears of it), sigterm=STEP (sent to
itself at the end of that step).
"""

import json
import os
import signal
import sys
import time
import warnings

import models

import deepfreeze


def main() -> None:
    run, steps = sys.argv[1], int(sys.argv[2])
    options = {name: json.loads(text) for name, text in (pair.split("=", 1) for pair in sys.argv[3:])}
    pause, stops = options.pop("pause", 0), options.pop("sigterm", None)
    keras = models.framework("keras")
    model = models.build(keras, "dense")
    checkpoint = deepfreeze.Checkpoint(run, **options)
    ended, error, signalled = [], None, 0.0

    class Beside(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            nonlocal signalled
            ended.append(int(model.optimizer.iterations.numpy()))
            time.sleep(pause)
            if ended[-1] == stops:
                signalled = time.monotonic()
                os.kill(os.getpid(), signal.SIGTERM)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            model.fit(models.batches(steps), verbose=0, shuffle=False, callbacks=[Beside(), checkpoint])
        except deepfreeze.Error as raised:
            error = str(raised)
    told = {
        "warnings": [str(w.message) for w in caught if issubclass(w.category, deepfreeze.CheckpointWarning)],
        "error": error,
        "last": ended[-1] if ended else 0,
        "resumed": checkpoint.stats.resumed,
        "stopped": checkpoint.stats.stopped,
        "since": time.monotonic() - signalled,  # the signal
    }
    print(json.dumps(told))


main()
