"""One small training: small.py RUN STEPS [KEY=VALUE ...] (Checkpoint's options). Prints a JSON line: the warnings, the error."""

import json
import sys
import warnings

import models

import deepfreeze


def main() -> None:
    run, steps = sys.argv[1], int(sys.argv[2])
    options = {name: json.loads(text) for name, text in (pair.split("=", 1) for pair in sys.argv[3:])}
    model = models.build(models.framework("keras"), "dense")
    error = None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            callbacks = [deepfreeze.Checkpoint(run, **options)]
            model.fit(models.batches(steps), verbose=0, shuffle=False, callbacks=callbacks)
        except deepfreeze.Error as raised:
            error = str(raised)
    ours = [str(w.message) for w in caught if issubclass(w.category, deepfreeze.CheckpointWarning)]
    print(json.dumps({"warnings": ours, "error": error}))


main()
