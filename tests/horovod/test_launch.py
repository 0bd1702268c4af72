"""How a job is started, and what its ranks are told when something is wrong."""

import numpy as np
import pytest

import deepfreeze
from deepfreeze.inspect.verify import verify
from tests.support import h5, jobs
from tests.support.horovod import case, horovod

pytestmark = [pytest.mark.ranks, pytest.mark.tensorflow]


def steps(folder):
    return [info.step for info in deepfreeze.checkpoints(folder / "run")]


@pytest.mark.full  # each a job of its own: tests/horovod/test_unlike_ranks.py has communicators of one rank
def test_one_rank_jobs_under_one_mpirun_in_one_run_are_refused(tmp_path):
    output = jobs.run(*case("alone", folder=tmp_path), ranks=2)
    (refused,) = [line for line in output.splitlines() if line.startswith("refused: ")]
    (opened,) = [line for line in output.splitlines() if line.startswith("opened by ")]
    assert f"pid {opened.split()[-1]}" in refused, "the holder is named"
    assert "hvd.init()" in refused, "and what to do about it"


@pytest.mark.full
def test_an_error_at_the_start_ends_every_rank_and_the_job_with_it(tmp_path):
    (tmp_path / "file").write_text("in the way")
    launch = case("ranks", api="keras", folder=tmp_path / "file", steps=4, every=2)
    with jobs.job(*launch, ranks=2) as job:
        assert job.wait() != 0
        output = job.output()
    assert "RunError" in output and "expected directories or nothing above it" in output
    assert "WorldError" in output and "rank 0 failed" in output


def test_one_rank_that_is_refused_ends_every_rank_with_the_reason(two, tmp_path):
    first, second = two.errors("ranks", api="keras", folder=tmp_path, steps=4, every=2, bad_rank=1)
    assert "UnsupportedError" in second and "found the legacy SimpleNamespace" in second
    assert "WorldError" in first and "rank 1 failed" in first


@pytest.mark.full
def test_rank_0_is_asked_for_the_run_and_makes_what_is_missing_above_it(two, tmp_path):
    folder = tmp_path / "trials" / "1"
    two.run("ranks", api="keras", folder=folder, out=tmp_path, steps=4, every=2, keep=9, asked=[0, 1])
    assert steps(folder) == [2, 4]
    for error in two.errors("ranks", api="keras", folder=folder, out=tmp_path, steps=6, every=2, asked=[0]):
        assert "run=a function, as on rank 0; found run=" in error


@pytest.mark.full
def test_ranks_that_horovods_callback_makes_alike_are_saved_from_then_on(two, tmp_path):
    """That callback broadcasts after the first step: the second one is the first to be saved."""
    two.run("ranks", api="tf_keras", folder=tmp_path, steps=3, every=1, keep=9)
    assert steps(tmp_path) == [2, 3]
    with np.load(tmp_path / "rank-1.npz") as other:
        file = h5.datasets(tmp_path / "run" / "step-0000000003" / "model.weights.h5")
        trainable = [path for path in file if path.startswith("layers") and "normalization" not in path]
        assert trainable and all(file[path].tobytes() == other[path].tobytes() for path in trainable)


def test_ranks_of_a_model_with_parallel_branches_do_not_wait_for_ever(two, tmp_path):
    two.run("ranks", api="keras", folder=tmp_path, steps=3, every=1, kind="branches", keep=9)
    assert steps(tmp_path) == [1, 2, 3]


@pytest.mark.full
def test_the_end_of_training_is_bounded_and_names_the_missing_rank(two, tmp_path):
    late = {1: "delay=15000:fdatasync:model.weights.h5:2"}
    options = {"kind": "dense", "timeout": 2}
    first, second = two.errors("ranks", late, api="keras", folder=tmp_path, steps=4, every=2, **options)
    for text in (first, second):
        assert "WaitError" in text or "EngineError" in text
    assert "rank 1" in first
    assert steps(tmp_path) == [2]


def killed_with_both_slots_written(folder, library):
    """Both ranks die when the second checkpoint's slots are written but none of its records is published: training waits for
    the local level, so when one rank dies the other has its slot too, or dies by the same fault. Returns the options."""
    node = folder / "node"
    node.mkdir()
    faults = {"DEEPFREEZE_LIBRARY": library, "DEEPFREEZE_FAULT": "kill-before:rename:step-0000000004.partial:1"}
    options = {"folder": folder, "local": node, "wait_for": "local", "kind": "dense", "api": "keras", "every": 2}
    with jobs.job(*case("ranks", steps=6, pause=0.5, **options), ranks=2, **faults) as job:
        assert job.wait() != 0
    assert steps(folder) == [2]
    return options


def assert_finishes_and_resumes(job, options):
    for stats in job.run("ranks", steps=4, **options):
        assert stats["resumed"] == 4
    assert steps(options["folder"]) == [2, 4]
    assert verify(options["folder"] / "run").ok
    assert not list(options["local"].rglob("*.slot")), "the local tier is cleared"


@pytest.mark.full
def test_what_was_whole_on_the_local_tier_is_finished_and_resumed(two, tmp_path, testing_library):
    options = killed_with_both_slots_written(tmp_path, testing_library)
    assert_finishes_and_resumes(two, options)


@pytest.mark.full
def test_one_rank_finishes_what_two_had_on_the_local_tier(tmp_path, testing_library):
    options = killed_with_both_slots_written(tmp_path, testing_library)
    with horovod(1) as one:
        assert_finishes_and_resumes(one, options)
