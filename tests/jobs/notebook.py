"""A notebook: notebook.py SHELL API RUN. A cell with a ``fit`` is interrupted by Ctrl-C, and run again. SHELL: ipython, or stdlib (the
interpreter of Python's own module ``code``). Prints the steps that the run has then."""

import code
import sys

CELL = """
import os, signal
import numpy as np
import {api} as keras
import deepfreeze

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs are started without it
keras.utils.set_random_seed(1)
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
model.compile("adam", "mse", jit_compile=False)


class CtrlC(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        if batch == 5 and not globals().get("again"):
            signal.raise_signal(signal.SIGINT)


checkpoint = deepfreeze.Checkpoint({run!r}, every=2, keep=9)
model.fit(np.ones((40, 4), "f4"), np.ones((40, 2), "f4"), batch_size=4, verbose=0, callbacks=[checkpoint, CtrlC()])
"""
STEPS = "again = True; first = checkpoint; print('steps', [info.step for info in deepfreeze.checkpoints({run!r})])"


def shell(name):
    """A function that runs a cell."""
    if name == "ipython":
        from IPython.core.interactiveshell import InteractiveShell
        from traitlets.config import Config

        return InteractiveShell.instance(config=Config({"HistoryManager": {"enabled": False}})).run_cell
    interpreter = code.InteractiveInterpreter({"__name__": "__main__"})
    return lambda cell: interpreter.runsource(cell, "<cell>", "exec")


def main(name, api, run):
    run_cell = shell(name)
    for cell in (CELL, STEPS) * 2:
        run_cell(cell.format(api=api, run=run))
    assert sys.last_type is KeyboardInterrupt, "the shell keeps the traceback, and with it the first callback"


if __name__ == "__main__":
    main(*sys.argv[1:])
