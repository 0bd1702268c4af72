"""Two ranks that were interrupted in one process, as in a notebook: they go on together, or are refused together."""

import pytest

import deepfreeze
from tests.support import kerases

pytestmark = [pytest.mark.ranks, pytest.mark.tensorflow, pytest.mark.full]


@pytest.mark.parametrize("api", kerases.NAMES)
@pytest.mark.parametrize(("way", "batches"), [("same", [5, 6, 7]), ("new", [4, 5, 6, 7])])
def test_ranks_that_were_interrupted_go_on_in_the_same_process(two, tmp_path, api, way, batches):
    assert two.run("left_behind", api=api, folder=tmp_path, way=way) == [batches] * 2
    assert [info.step for info in deepfreeze.checkpoints(tmp_path / "run")] == [2, 4, 6, 8]


def test_a_run_that_one_rank_has_no_more_is_not_taken_over(two, tmp_path):
    assert two.run("left_behind", api="keras", folder=tmp_path, way="forgotten") == ["LockedError", "WorldError"]
