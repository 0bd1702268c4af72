"""Horovod's example for Keras with all of its callbacks, and with what takes their place under Keras 3."""

import pytest

import deepfreeze
from tests.support import kerases

pytestmark = [pytest.mark.ranks, pytest.mark.tensorflow]


@pytest.mark.parametrize(
    "api", [kerases.NAMES[-1], *(pytest.param(name, marks=pytest.mark.full) for name in kerases.NAMES[:-1])]
)
def test_horovods_example_trains_with_all_its_callbacks_and_resumes(two, api, tmp_path):
    """The metrics are averaged, the rate is warmed up, and a second start goes on from the first one's last step."""
    for begin, steps in ((0, 8), (2, 16)):
        first, second = two.run("horovods_callbacks", api=api, folder=tmp_path, begin=begin)
        logs, rate, step = first
        assert logs == second[0], "both ranks have the averages"
        assert len(logs["loss"]) == len(logs["mae"]) == 2
        assert rate == pytest.approx(2e-3) and step == steps
    assert deepfreeze.latest(tmp_path / "run").step == 16
    assert (tmp_path / "checkpoint-4.keras").exists()
