"""A rank of a Horovod job that runs cases. A case is a module here, whose ``run`` takes JSON and returns JSON.

case.py NAME ARGUMENTS FAULTS   runs one, as a script that was launched for that does; FAULTS: plans by rank
case.py SOCKET                  connects to tests/support/horovod.py and runs what it is sent, each as if it were the first
"""

import contextlib
import gc
import importlib
import json
import os
import sys
import traceback
import warnings
from multiprocessing.connection import Client
from pathlib import Path

from deepfreeze.process_state import PROCESS
from tests.support import faults


def run(name, arguments):
    """Runs one case."""
    return importlib.import_module(name).run(**arguments)


@contextlib.contextmanager
def fresh(plan, log):
    """What a case leaves to the next one: nothing but imported modules, and files."""
    forget()
    environment = dict(os.environ)
    if "DEEPFREEZE_LIBRARY" in environment:
        faults.plan(plan, log)
    try:
        with warnings.catch_warnings():
            yield
    finally:
        os.environ.clear()
        os.environ.update(environment)
        gc.collect()


def forget():
    """Takes back what Keras has counted, its settings, and which models DeepFreeze has seen trained."""
    PROCESS.trained_models.clear()
    for keras in [sys.modules[name] for name in ("keras", "tf_keras") if name in sys.modules]:
        keras.backend.clear_session()
        keras.mixed_precision.set_global_policy("float32")
        if not hasattr(keras, "ops"):
            keras.backend.experimental.disable_tf_random_generator()
    if "tensorflow" in sys.modules:
        from tensorflow.python.framework import config

        config.disable_op_determinism()  # with which Keras 3 takes jit_compile=True for False


def answer(name, arguments, plan, log):
    """What the case returned, or the traceback of what it raised."""
    try:
        with fresh(plan, log):
            return {"value": run(name, arguments)}
    except Exception:
        return {"error": traceback.format_exc()}


def serve(socket):
    """Runs cases until the other side closes."""
    import horovod.tensorflow as hvd
    import models

    models.use_few_threads()  # before the first case: any case may run after any other
    hvd.init()
    with Client(socket, "AF_UNIX") as connection:
        connection.send_bytes(json.dumps([hvd.rank(), os.getpid()]).encode())
        with contextlib.suppress(EOFError):
            while True:
                case = json.loads(connection.recv_bytes())
                print(f"--- {case}", flush=True)
                connection.send_bytes(json.dumps(answer(**case)).encode())


if __name__ == "__main__":
    if Path(sys.argv[1]).is_socket():
        serve(sys.argv[1])
    else:
        if own := json.loads(sys.argv[3]).get(os.environ["OMPI_COMM_WORLD_RANK"]):
            faults.plan(own)
        run(sys.argv[1], json.loads(sys.argv[2]))
