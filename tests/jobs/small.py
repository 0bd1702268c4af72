"""One small training: small.py RUN STEPS [KEY=VALUE ...]. Prints a JSON line: the warnings, the error, and what else there is to say.

Options are Checkpoint's, plus: pause=S (seconds, at the end of each step, before the checkpoint hears of it), sigterm=STEP (sent to
itself at the end of that step), log=FILE (a line for each step that has ended).
"""

import json
import os
import signal
import sys
import time
import warnings

import models

import deepfreeze
from tests.support.options import grouped


def main() -> None:
    run, steps = sys.argv[1], int(sys.argv[2])
    options = {name: json.loads(text) for name, text in (pair.split("=", 1) for pair in sys.argv[3:])}
    pause, stops, log = options.pop("pause", 0), options.pop("sigterm", None), options.pop("log", os.devnull)
    keras = models.framework("keras")
    model = models.build(keras, "dense")
    checkpoint = deepfreeze.Checkpoint(run, **grouped(options))
    ended, error, signalled = [], None, 0.0

    class Beside(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            nonlocal signalled
            ended.append(int(model.optimizer.iterations.numpy()))
            with open(log, "a") as file:
                print(ended[-1], file=file)
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
        "superseded": checkpoint.stats.superseded,
        "since": time.monotonic() - signalled,  # the signal
    }
    print(json.dumps(told))


main()
