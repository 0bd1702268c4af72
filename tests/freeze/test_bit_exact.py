"""The checkpoint of step s is, bit for bit, what Keras saves after step s in an independent process without DeepFreeze."""

import numpy as np
import pytest

import deepfreeze
from deepfreeze.thaw.read import read_private
from tests.jobs.models import KINDS
from tests.support import h5, jobs, kerases

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

# steps per execution -> (steps, every, capture): no multiple of each other, so captures fall inside an execution.
PLANS = {1: (7, 3, "auto"), 4: (12, 5, "graph")}
CAPTURED = {1: [3, 6, 7], 4: [5, 10, 12]}


# The second Keras's trainings are compared with others in the same process (tests/trainings); in `make test-all` here too.
SECOND = [pytest.param(name, marks=pytest.mark.full) for name in kerases.NAMES[1:]]


@pytest.fixture(scope="module", params=[kerases.NAMES[0], *SECOND])
def runs(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    for per_execution, (steps, every, capture) in PLANS.items():
        jobs.run("freeze.py", request.param, folder, steps, every, per_execution, capture)
    jobs.run("stock.py", request.param, folder, *sorted({step for steps in CAPTURED.values() for step in steps}))
    return request.param, folder


@pytest.mark.parametrize("per_execution", PLANS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_checkpoint_equals_what_keras_saves_in_another_process(runs, kind, per_execution):
    """A checkpoint equals what keras saves after its step in an independent process."""
    api, folder = runs
    run = folder / f"{kind}-{per_execution}"
    found = deepfreeze.checkpoints(run)
    assert [info.step for info in found] == CAPTURED[per_execution]
    for info in found:
        h5.assert_same(info.path / "model.weights.h5", folder / f"{kind}-{info.step}.weights.h5")
        seeds = list(read_private(run, info.step, 0).values())
        with np.load(folder / f"{kind}-{info.step}.npz") as expected:
            assert [s.tolist() for s in seeds] == [expected[name].tolist() for name in expected.files]
        if api == "keras" and not kerases.KERAS_IS_2 and kind in ("dense", "attention"):
            assert seeds, "a model with dropout has a seed to keep"
