"""What real Horovod jobs may do besides: accumulate gradients, keep states of their own, and disagree."""

import numpy as np
import pytest

import deepfreeze
from deepfreeze.thaw.verify import verify
from tests.support import jobs, kerases


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
        ("every", "7", "rank 1: expected every=EverySteps(k=15), as on rank 0; found every=EverySteps(k=7)"),
        ("keep", "5", "rank 1: expected keep=2, as on rank 0; found keep=5"),
    ],
)
def test_ranks_that_disagree_are_all_told_which_rank_and_what(option, value, expected, tmp_path):
    output = jobs.run("unlike.py", tmp_path, option, value, ranks=2)
    told = [line for line in output.splitlines() if "says: " in line]
    assert len(told) == 2 and all(expected in line for line in told), output
    assert not (tmp_path / "run").exists()
