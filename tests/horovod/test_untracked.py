"""Variables that a model does not list, and those that Keras leaves out of its files, on two ranks."""

import pytest

import deepfreeze
from deepfreeze.inspect.verify import verify
from tests.support import kerases, untracked_models

pytestmark = [pytest.mark.ranks, pytest.mark.tensorflow]


CASES = [
    pytest.param(api, name, marks=[] if (api, name) == ("keras", "generator") else pytest.mark.full)
    for api in kerases.NAMES
    for name in untracked_models.MODELS
]


@pytest.mark.parametrize(("api", "name"), CASES)
def test_a_resumed_job_equals_a_whole_one(two, api, name, tmp_path):
    assert two.run("untracked", api=api, folder=tmp_path, kind=name) == [[], []]
    assert all(verify(tmp_path / "run", info.step).ok for info in deepfreeze.checkpoints(tmp_path / "run"))
