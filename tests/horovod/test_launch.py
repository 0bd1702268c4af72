"""How a job is started, and what its ranks are told when something is wrong."""

import json

import numpy as np
import pytest

import deepfreeze
from deepfreeze.thaw.verify import verify
from tests.support import h5, jobs


def test_one_rank_jobs_under_one_mpirun_in_one_run_are_refused_with_the_reason(tmp_path):
    output = jobs.run("alone.py", tmp_path / "run", ranks=2)
    (refused,) = [line for line in output.splitlines() if line.startswith("refused: ")]
    (opened,) = [line for line in output.splitlines() if line.startswith("opened by ")]
    assert f"pid {opened.split()[-1]}" in refused, "the holder is named"
    assert "hvd.init()" in refused, "and what to do about it"


def test_an_error_at_the_start_ends_every_rank_with_it(tmp_path):
    job = jobs.start("ranks.py", "keras", tmp_path / "missing", 4, 2, f"out={tmp_path}", ranks=2)
    output, _ = job.communicate(timeout=jobs.LIMIT_S)
    assert job.returncode != 0
    assert "RunError" in output and "expected an existing parent directory" in output
    assert "WorldError" in output and "rank 0 failed" in output


def test_one_rank_that_is_refused_ends_every_rank_with_the_reason(tmp_path):
    job = jobs.start("ranks.py", "keras", tmp_path, 4, 2, "bad_rank=1", ranks=2)
    output, _ = job.communicate(timeout=jobs.LIMIT_S)
    assert job.returncode != 0
    assert "UnsupportedError" in output and "found one without an optimizer" in output
    assert "WorldError" in output and "rank 1 failed" in output


def test_ranks_that_horovods_callback_makes_alike_after_the_first_step_are_saved_from_the_second_on(tmp_path):
    jobs.run("ranks.py", "tf_keras", tmp_path, 3, 1, "keep=9", ranks=2)
    assert [info.step for info in deepfreeze.checkpoints(tmp_path / "run")] == [2, 3]
    with np.load(tmp_path / "rank-1.npz") as other:
        file = h5.datasets(tmp_path / "run" / "step-0000000003" / "model.weights.h5")
        trainable = [path for path in file if path.startswith("layers") and "normalization" not in path]
        assert trainable and all(file[path].tobytes() == other[path].tobytes() for path in trainable)


def test_ranks_of_a_model_with_parallel_branches_do_not_wait_for_each_other_for_ever(tmp_path):
    jobs.run("ranks.py", "keras", tmp_path, 3, 1, "kind=branches", "keep=9", ranks=2)
    assert [info.step for info in deepfreeze.checkpoints(tmp_path / "run")] == [1, 2, 3]


def test_the_end_of_training_is_bounded_and_names_the_rank_that_is_missing(tmp_path, testing_library):
    faults = {"DEEPFREEZE_LIBRARY": testing_library, "DEEPFREEZE_FAULT": "delay=30000:rename:rank-00001.record:2"}
    job = jobs.start("ranks.py", "keras", tmp_path, 4, 2, "timeout=5", ranks=2, **faults)
    output, _ = job.communicate(timeout=jobs.LIMIT_S)
    assert job.returncode != 0
    assert "WaitError" in output or "EngineError" in output
    assert "rank 1" in output
    assert [info.step for info in deepfreeze.checkpoints(tmp_path / "run")] == [2]


@pytest.mark.parametrize("ranks", [1, 2], ids=["same-world", "other-world"])
def test_a_checkpoint_that_was_whole_on_the_local_tier_is_finished_and_resumed(tmp_path, testing_library, ranks):
    """Both ranks die when the second checkpoint's slots are written but none of its records is published."""
    faults = {"DEEPFREEZE_LIBRARY": testing_library}
    faults["DEEPFREEZE_FAULT"] = "kill-before:rename:step-0000000004.partial:1"
    node = tmp_path / "node"
    node.mkdir()
    # Training waits for the local level, so when one rank dies the other has its slot too, or dies by the same fault.
    options = [f"local={node}", "wait_for=local", "kind=dense"]
    job = jobs.start("ranks.py", "keras", tmp_path, 6, 2, *options, "pause=0.5", ranks=2, **faults)
    job.communicate(timeout=jobs.LIMIT_S)
    assert [info.step for info in deepfreeze.checkpoints(tmp_path / "run")] == [2]
    again = tmp_path / "again"
    again.mkdir()
    jobs.run("ranks.py", "keras", tmp_path, 4, 2, *options, f"out={again}", ranks=ranks)
    assert json.loads((again / "rank-0.json").read_text())["resumed"] == 4
    assert [info.step for info in deepfreeze.checkpoints(tmp_path / "run")] == [2, 4]
    assert verify(tmp_path / "run").ok
    assert not list(node.rglob("*.slot")), "the local tier is cleared"
    whole = tmp_path / "whole"
    whole.mkdir()
    jobs.run("ranks.py", "keras", whole, 4, 2, "kind=dense", ranks=2)
    h5.assert_same(*(d / "run" / "step-0000000004" / "model.weights.h5" for d in (tmp_path, whole)))
