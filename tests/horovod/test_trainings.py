"""What real Horovod jobs may do besides: accumulate gradients, skip updates, keep states of their own, disagree, and fail."""

import importlib

import numpy as np
import pytest

import deepfreeze
from deepfreeze.inspect.verify import verify
from tests.support import jobs, kerases, trainings
from tests.support.horovod import case

pytestmark = [pytest.mark.ranks, pytest.mark.tensorflow]


# The other Keras accumulates in Horovod's optimizer; tests/training has that on one rank.
@pytest.mark.parametrize(
    "api", [kerases.NAMES[0], *(pytest.param(name, marks=pytest.mark.full) for name in kerases.NAMES[1:])]
)
@pytest.mark.full
def test_a_resumed_job_that_accumulates_gradients_equals_a_whole_one(two, api, tmp_path):
    folders = [tmp_path / name for name in ("whole", "parts")]
    for folder, stops in zip(folders, ([12], [4, 12]), strict=True):
        folder.mkdir()
        for stop in stops:
            two.run("accumulating", api=api, folder=folder, stop=stop)
    whole, parts = folders
    assert [info.step for info in deepfreeze.checkpoints(parts / "run")] == [2, 4, 6], "a step is an update"
    assert all(verify(parts / "run", info.step).ok for info in deepfreeze.checkpoints(parts / "run"))
    for rank in range(2):
        with np.load(whole / f"12-{rank}.npz") as expected, np.load(parts / f"12-{rank}.npz") as found:
            differing = [path for path in expected if expected[path].tobytes() != found[path].tobytes()]
        assert [path for path in differing if not path.startswith("metrics")] == [], f"rank {rank}"


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("every", 7, "rank 1: expected every=15, as on rank 0; found every=7"),
        pytest.param(
            "slots", 5, "rank 1: expected engine.slots=2, as on rank 0; found engine.slots=5", marks=pytest.mark.full
        ),
    ],
    ids=["every", "slots"],
)
def test_ranks_that_disagree_are_all_told_which_rank_and_what(two, option, value, expected, tmp_path):
    for told in two.run("unlike", folder=tmp_path, option=option, other=value):
        assert told is not None and expected in told
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("api", "averaged"),
    [
        ("keras", False),
        # A Keras 2, on which Horovod's own optimizer averages.
        pytest.param(kerases.NAMES[-1], True, marks=pytest.mark.full),
        *(pytest.param(name, False, marks=pytest.mark.full) for name in kerases.NAMES[1:]),
    ],
)
def test_ranks_that_average_nothing_are_told_before_the_first_step(two, api, averaged, tmp_path):
    zero, one = two.run("unaveraged", api=api, folder=tmp_path, averaged=averaged)
    if averaged:
        assert zero == one == [[], None]
        return
    told, error = zero
    assert len(told) == 1 and "Horovod has 2 ranks, but Adam does not average their gradients" in told[0]
    assert error is not None and "expected the same weights on all ranks" in error


@pytest.mark.full
@pytest.mark.parametrize("api", kerases.NAMES)
def test_an_update_that_one_rank_s_overflow_makes_all_skip_is_no_step(two, api, tmp_path):
    """It is in no checkpoint, and resumed over. Keras 2 counts it as a step all the same."""
    is_2 = kerases.is_2(importlib.import_module(api))
    reports = two.run("half", api=api, folder=tmp_path)
    steps = list(range(1, 7 if is_2 else 6))
    assert trainings.stock_steps(tmp_path) == steps
    trainings.assert_run_is(tmp_path / "run", tmp_path, steps)
    reasons = ["say jit_compile=False in model.compile"]
    if not is_2:
        reasons.append("DistributedOptimizer(keras.optimizers.LossScaleOptimizer(optimizer))")
    assert not (tmp_path / "refused").exists()
    for told in reports:
        assert len(told) == len(reasons), told
        assert all(sum(reason.lower() in text.lower() for text in told) == 1 for reason in reasons), told


def test_an_exception_on_one_rank_hangs_nobody_and_keeps_what_is_committed(tmp_path):
    with jobs.job(*case("raising", api=kerases.NAMES[0], folder=tmp_path), ranks=2) as job:
        assert job.wait() != 0
        assert "rank 1's own" in job.output() and "EngineFault" not in job.output()
    assert [info.step for info in deepfreeze.checkpoints(tmp_path / "run")] == [2, 4]
    assert all(verify(tmp_path / "run", step).ok for step in (2, 4))
