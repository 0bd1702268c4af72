"""Two Horovod ranks save what they held, by either way of capture."""

import pytest

import deepfreeze
from deepfreeze.inspect.verify import verify
from tests.horovod.test_ranks import assert_is, held

pytestmark = [pytest.mark.ranks, pytest.mark.tensorflow]


@pytest.mark.parametrize("path", [pytest.param("auto", marks=pytest.mark.full), "graph"])
def test_two_ranks_save_what_they_held(two, tmp_path, path):
    two.run("ranks", api="keras", folder=tmp_path, steps=4, every=2, path=path)
    run = tmp_path / "run"
    assert [info.step for info in deepfreeze.checkpoints(run)] == [2, 4] and verify(run).ok
    assert_is(run, 4, [held(tmp_path, 0), held(tmp_path, 1)])
