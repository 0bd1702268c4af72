"""Case: a one-rank job that never calls hvd.init. Opens the run; whoever has it keeps it until the other is refused."""

import os
import time

import models

import deepfreeze


def run(folder):
    place = f"{folder}/run"
    model = models.build(models.framework("keras"), "dense")
    checkpoint = deepfreeze.Checkpoint(place)
    try:
        checkpoint.open(model)
    except deepfreeze.LockedError as error:
        print(f"refused: {error}", flush=True)
        with open(f"{place}.refused", "w"):
            pass
        return
    print(f"opened by {os.getpid()}", flush=True)
    until = time.monotonic() + 120
    while not os.path.exists(f"{place}.refused") and time.monotonic() < until:
        time.sleep(0.05)
    checkpoint.close()
