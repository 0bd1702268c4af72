"""What real Horovod jobs may do besides: accumulate gradients, skip updates, keep states of their own, disagree, and fail."""

import importlib

import numpy as np
import pytest

import deepfreeze
from deepfreeze.thaw.verify import verify
from tests.support import jobs, kerases, trainings


@pytest.mark.parametrize("api", kerases.NAMES)
def test_a_resumed_job_that_accumulates_gradients_equals_an_uninterrupted_one(api, tmp_path):
    folders = [tmp_path / name for name in ("whole", "parts")]
    for folder, stops in zip(folders, ([12], [4, 12]), strict=True):
        folder.mkdir()
        for stop in stops:
            jobs.run("accumulating.py", api, folder, stop, ranks=2)
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
        ("every", "7", "rank 1: expected every=15, as on rank 0; found every=7"),
        ("keep", "5", "rank 1: expected keep=2, as on rank 0; found keep=5"),
    ],
)
def test_ranks_that_disagree_are_all_told_which_rank_and_what(option, value, expected, tmp_path):
    output = jobs.run("unlike.py", tmp_path, option, value, ranks=2)
    told = [line for line in output.splitlines() if "says: " in line]
    assert len(told) == 2 and all(expected in line for line in told), output
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("api", kerases.NAMES)
def test_an_update_that_one_rank_s_overflow_makes_all_skip_is_in_no_checkpoint_and_resumed_over(api, tmp_path):
    output = jobs.run("half.py", api, tmp_path, ranks=2)
    # Keras 2 counts a skipped update as a step.
    steps = list(range(1, 7 if kerases.is_2(importlib.import_module(api)) else 6))
    assert trainings.stock_steps(tmp_path) == steps
    trainings.assert_run_is(tmp_path / "run", tmp_path, steps)
    told = [line for line in output.splitlines() if " is told: " in line]
    reasons = ["say jit_compile=False in model.compile"]
    if not kerases.is_2(importlib.import_module(api)):
        reasons.append("DistributedOptimizer(keras.optimizers.LossScaleOptimizer(optimizer))")
    assert len(told) == 2 * len(reasons) and not (tmp_path / "refused").exists(), output
    assert all(sum(reason.lower() in line.lower() for line in told) == 2 for reason in reasons), output


@pytest.mark.parametrize("api", kerases.NAMES[:1])
def test_an_exception_on_one_rank_hangs_nobody_and_what_was_committed_stays(api, tmp_path):
    job = jobs.start("raising.py", api, tmp_path / "run", ranks=2)
    try:
        output, _ = job.communicate(timeout=jobs.LIMIT_S)
    finally:
        jobs.kill(job)
    assert job.returncode not in (0, None) and "rank 1's own" in output, output[-4000:]
    assert [info.step for info in deepfreeze.checkpoints(tmp_path / "run")] == [2, 4]
    assert all(verify(tmp_path / "run", step).ok for step in (2, 4))
