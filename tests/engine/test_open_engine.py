"""What a backend refuses becomes an error of ours with something to do; and no wait is without a bound."""

import os
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

import veloc_bindings
from deepfreeze.engine.faults import Faults
from deepfreeze.errors import EngineError, WaitError
from tests.support import jobs, processes
from tests.support.refusals import assert_four_parts
from veloc_bindings import EngineFault

CODES = ("INVALID", "IO", "NO_SPACE", "TIMEOUT", "CORRUPT", "INCOMPLETE", "CLOSED", "DIVERGED", "TAKEN")


MOVING = """
import sys, time
import numpy as np
import deepfreeze
from deepfreeze.engine.backend import Opening
from deepfreeze.engine.open_engine import OpenEngine
from deepfreeze.engine.backends.embedded.backend import KIND
from deepfreeze.notices import unheard
from deepfreeze.engine.target import Target
run, waits = sys.argv[1:]
data = np.arange(200_000, dtype=np.uint8)
rows = np.array([[data.ctypes.data, data.nbytes, 0]], np.uint64)
opening = Opening(target=Target(run, 32 * "0", 32 * "0"), structure=bytes(32), file_size=data.nbytes, timeout=2.0,
                  engine=deepfreeze.Engine(writers=1, chunk_bytes=8192, in_flight=1, nice=0))
engine = OpenEngine(KIND, opening, unheard)
begin = time.monotonic()
engine.submit(1, rows, b"", [data])
if waits == "memory":
    engine.submit(2, rows, b"", [data])
elif waits == "commit":
    engine.wait(1, 3)
else:
    while not engine.drain(0.1):
        if engine.stalled(begin):
            raise engine.give_up()
print(time.monotonic() - begin)
"""


WAITS = ("memory", "commit", "all")
# Each write takes a tenth of the bound, all of them together more than twice the bound; or one takes for ever.
FAULTS = {"moves": "delay=200:pwrite:model.weights.h5:1+", "stands": "delay=900000:pwrite:model.weights.h5:4"}


@pytest.fixture(scope="module")
def ended(testing_library, tmp_path_factory):
    """The ends of six processes that waited at the same time, by what their store did and what they waited for."""

    def wait(case):
        store, waits = case
        environment = {**os.environ, "DEEPFREEZE_LIBRARY": testing_library, "DEEPFREEZE_FAULT": FAULTS[store]}
        command = [sys.executable, "-c", MOVING, str(tmp_path_factory.mktemp("run")), waits]
        return processes.run(command, env=environment, capture_output=True, text=True)

    cases = [(store, waits) for store in FAULTS for waits in WAITS]
    with ThreadPoolExecutor(len(cases)) as pool:
        return dict(zip(cases, pool.map(wait, cases), strict=True))


@pytest.mark.slow
@pytest.mark.timing
@pytest.mark.parametrize("waits", WAITS)
def test_a_wait_goes_on_for_longer_than_its_bound_while_bytes_move(ended, waits):
    done = ended["moves", waits]
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) > 4.0, "this test shows nothing"


@pytest.mark.slow
@pytest.mark.timing
@pytest.mark.parametrize("waits", WAITS)
def test_a_wait_ends_when_nothing_has_moved_for_its_bound(ended, waits):
    done = ended["stands", waits]
    assert (
        done.returncode == 1 and "WaitError" in done.stderr and ", or bytes that move, within 2 s; " in done.stderr
    ), done.stderr


@pytest.mark.parametrize("code", [*(getattr(veloc_bindings, name) for name in CODES), 99], ids=[*CODES, "unknown"])
def test_every_code_of_the_engine_has_its_advice(code):
    error = Faults("runs/nt3", 600.0).error(EngineFault(code, "rename runs/nt3/x: no"), "to take step 15")
    assert type(error) is (WaitError if code == veloc_bindings.TIMEOUT else EngineError)
    assert_four_parts(error, where="runs/nt3", expected="to take step 15", found="rename runs/nt3/x: no")
    assert "above" not in error.todo and len(error.todo) > 20


_LEFT_BEHIND = """
import veloc_bindings
from deepfreeze.engine.backend import BackendKind, Opening
from deepfreeze.engine.open_engine import OpenEngine
from deepfreeze.engine.target import Target

class Backend:
    def __init__(self, opening): pass
    def submit(self, *args): pass
    def close(self): raise veloc_bindings.EngineFault(veloc_bindings.TIMEOUT, "the store hangs")

class Memory:
    def __del__(self): print("freed")

target = Target("runs/nt3", 32 * "0", 32 * "0")
engine = OpenEngine(BackendKind(print, Backend), Opening(target=target, structure=bytes(32), file_size=1, timeout=1.0), print)
engine.submit(10, None, b"", Memory())
engine.close()
del engine
"""


def test_what_an_engine_left_behind_reads_is_never_freed():
    """What an engine that is left behind reads is never freed not even at the end."""
    done = processes.run(
        [sys.executable, "-c", _LEFT_BEHIND], env=jobs.environment(), capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stdout) == (0, "warning runs/nt3: the store hangs\n"), done.stderr
