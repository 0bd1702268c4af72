"""Two Horovod ranks whose store is slow save what they held, by either way of capture."""

import pytest

import deepfreeze
from deepfreeze.inspect.verify import verify
from tests.horovod.test_ranks import assert_is, assert_restored, held

pytestmark = [pytest.mark.ranks, pytest.mark.tensorflow]
SLOW = "delay=20:pwrite:model.weights.h5:1+"


@pytest.mark.parametrize("path", [pytest.param("auto", marks=pytest.mark.full), "graph"])
def test_two_ranks_save_and_restore_what_they_held(two, tmp_path, path):
    two.run("ranks", {1: SLOW}, api="keras", folder=tmp_path, steps=4, every=1, keep=9, path=path)
    run = tmp_path / "run"
    assert [info.step for info in deepfreeze.checkpoints(run)] == [1, 2, 3, 4] and verify(run).ok
    assert_is(run, 4, [held(tmp_path, 0), held(tmp_path, 1)])
    assert_restored(two, run, 4, tmp_path / "restored", api="keras", path=path)
