"""A one-rank job that never calls hvd.init: alone.py RUN. Opens the run; whoever has it keeps it until the other is refused."""

import os
import sys
import time

import models

import deepfreeze


def main() -> None:
    run = sys.argv[1]
    model = models.build(models.framework("keras"), "dense")
    checkpoint = deepfreeze.Checkpoint(run)
    try:
        checkpoint.open(model)
    except deepfreeze.LockedError as error:
        print(f"refused: {error}", flush=True)
        with open(f"{run}.refused", "w"):
            pass
        return
    print(f"opened by {os.getpid()}", flush=True)
    until = time.monotonic() + 120
    while not os.path.exists(f"{run}.refused") and time.monotonic() < until:
        time.sleep(0.05)
    checkpoint.close()


main()
