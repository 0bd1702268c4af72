"""Horovod ranks whose captures are late save what they held."""

import pytest

import deepfreeze
from deepfreeze.inspect.verify import verify
from tests.horovod.test_ranks import assert_is, held
from tests.support import kerases
from tests.support.horovod import horovod

pytestmark = [pytest.mark.ranks, pytest.mark.tensorflow]


@pytest.mark.parametrize(
    ("api", "when"),
    [
        ("keras", "late"),
        pytest.param("keras", "auto", marks=pytest.mark.full),
        *(pytest.param(name, "late", marks=pytest.mark.full) for name in kerases.NAMES[1:]),
    ],
)
def test_two_ranks_save_what_they_held_before_the_next_step(two, tmp_path, api, when):
    """The last checkpoint is compared with what the ranks hold then, and each one before with a job that ends there."""
    two.run("ranks", api=api, folder=tmp_path, steps=5, every=2, when=when, keep=9)
    run = tmp_path / "run"
    assert [info.step for info in deepfreeze.checkpoints(run)] == [2, 4, 5] and verify(run).ok
    assert_is(run, 5, [held(tmp_path, 0), held(tmp_path, 1)])
    whole = tmp_path / "until-4"
    whole.mkdir()
    two.run("ranks", api=api, folder=whole, steps=4, every=4)
    assert_is(run, 4, [held(whole, 0), held(whole, 1)])


@pytest.mark.full
def test_three_ranks_save_what_they_held_before_the_next_step(tmp_path):
    with horovod(3) as three:
        three.run("ranks", api="keras", folder=tmp_path, steps=5, every=2, when="late")
    assert [info.step for info in deepfreeze.checkpoints(tmp_path / "run")] == [4, 5]
    assert_is(tmp_path / "run", 5, [held(tmp_path, rank) for rank in range(3)])
