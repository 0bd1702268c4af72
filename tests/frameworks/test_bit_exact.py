"""The checkpoint of step s is, bit for bit, what Keras saves after step s in an independent process without DeepFreeze."""

import numpy as np
import pytest

import deepfreeze
from tests.jobs.models import KINDS
from tests.support import h5, jobs, kerases
from tests.support.private import read_private

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

# steps per execution -> (steps, every, capture): no multiple of each other, so captures fall inside an execution.
PLANS = {1: (7, 3, "auto"), 4: (12, 5, "graph")}
CAPTURED = {1: [3, 6, 7], 4: [5, 10, 12]}


# The others are compared with trainings in the same process (tests/training); in `make test-all` here too.
FIRST = (kerases.NAMES[0], 1)
OTHERS = [(api, plan) for api in kerases.NAMES for plan in PLANS if (api, plan) != FIRST]


@pytest.fixture(
    scope="module",
    params=[FIRST, *(pytest.param(other, marks=pytest.mark.full) for other in OTHERS)],
    ids="{0[0]}-{0[1]}".format,
)
def runs(request, tmp_path_factory):
    api, per_execution = request.param
    folder = tmp_path_factory.mktemp(api)
    steps, every, capture = PLANS[per_execution]
    jobs.run("freeze.py", api, folder, steps, every, per_execution, capture)
    jobs.run("stock.py", api, folder, *CAPTURED[per_execution])
    return api, per_execution, folder


@pytest.mark.parametrize("kind", KINDS)
def test_a_checkpoint_equals_what_keras_saves_in_another_process(runs, kind):
    """The file of step s holds what stock Keras saves after step s in a process without DeepFreeze."""
    api, per_execution, folder = runs
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
