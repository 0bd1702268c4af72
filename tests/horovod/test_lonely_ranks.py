"""Jobs in which one rank calls the others in vain: every process ends in bounded time, and the error names the rank that was missing."""

import time

import pytest

import deepfreeze
from tests.support import jobs, kerases
from tests.support.horovod import case as launch

pytestmark = [pytest.mark.ranks, pytest.mark.tensorflow]

TIMEOUT = 3


def alone(case, full=True, **more):
    marks = pytest.mark.full if full else ()
    return pytest.param(case, more, marks=marks, id="-".join([case, *map(str, more.values())]))


@pytest.mark.parametrize(
    ("case", "more"),
    [
        alone("rank-1", full=False),
        alone("rank-0"),
        alone("rank-0", api="tf_keras"),
        alone("rank-1", api="tf_keras"),
        alone("exception"),
        alone("metrics"),
        alone("rank-0", world="mpi"),
        alone("rank-1", world="mpi"),
        alone("exception", world="mpi"),
    ],
)
def test_a_rank_that_nobody_joins_ends_the_job_and_names_the_other(tmp_path, case, more):
    lonely = 1 if case == "rank-1" else 0
    with jobs.job(
        *launch("lonely", **{"api": "keras", "folder": tmp_path, "case": case, "timeout": TIMEOUT, **more}), ranks=2
    ) as job:
        job.until(lambda: f"rank {lonely} fits" in job.output())
        begin = time.monotonic()
        job.until(lambda: f"rank {lonely}: WaitError" in job.output())
        try:
            assert job.wait(TIMEOUT + 30) != 0
        finally:
            print(f"ended after {time.monotonic() - begin:.0f} s")
        output = job.output()
    said = next(line for line in output.splitlines() if line.startswith(f"rank {lonely}: WaitError"))
    assert f"expected rank {1 - lonely} to come to" in said and "with the same callbacks in the same order" in said
    assert ("Missing ranks" in said) == ("world" not in more) and ("python -m mpi4py" in said) == ("world" in more)
    assert "terminate called" not in output and "Aborted" not in output and "Segmentation" not in output


@pytest.mark.parametrize("case", ["callbacks", pytest.param("checkpoints", marks=pytest.mark.full)])
@pytest.mark.parametrize(
    "api", [*(pytest.param(api, marks=pytest.mark.full) for api in kerases.NAMES[1:]), kerases.NAMES[0]]
)
def test_ranks_whose_callbacks_come_in_another_order_hear_so_at_once(two, tmp_path, api, case):
    errors = two.run("lonely", api=api, folder=tmp_path, case=case, timeout=60)
    for rank, error in enumerate(errors):
        if case == "checkpoints":
            assert "OptionError: rank 1: expected run=" in error, errors
        else:
            assert f"WorldError: rank {rank}: expected rank {1 - rank} to come to the same call" in error, errors
            assert "deepfreeze.BroadcastState" in error and "deepfreeze.Checkpoint" in error
            assert "the same callbacks in the same order" in error
    assert not list(tmp_path.iterdir())


@pytest.mark.full
def test_a_rank_at_work_for_longer_than_the_timeout_is_waited_for(two, tmp_path):
    assert two.run("lonely", api="keras", folder=tmp_path, case="at-work", timeout=4) == [None, None]
    assert [info.step for info in deepfreeze.checkpoints(tmp_path / "a")] == [6, 8]
