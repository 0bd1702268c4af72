"""``storage=`` in a Horovod job: rank 0 alone looks at the run, and the other ranks write nothing before it has found room."""

import pytest

import deepfreeze
from benchmarks.stored import sampled, taken
from deepfreeze.store import tags
from deepfreeze.store.run import Run

pytestmark = [pytest.mark.ranks, pytest.mark.tensorflow]
OPTIONS = {"every": 1, "resume_epochs": False}


@pytest.mark.full
def test_two_ranks_never_take_more_than_the_storage_given(two, tmp_path):
    """Also when rank 1 is fast and rank 0's part of each commit slow. And with two tags too many both skip the same steps."""
    run = tmp_path / "run"
    two.run("agreement", folder=tmp_path, steps=4, keep=2, **OPTIONS)
    file = taken(run) // 2 + 6000
    limit = 3 * file + file // 2
    with sampled(run) as samples:
        two.start("agreement", {0: "delay=20:rename:step-:1+"}, folder=tmp_path, steps=30, storage=limit, **OPTIONS)
        first, second = two.values()
    assert first["skipped"] == second["skipped"] == [] and first["committed"] == list(range(5, 35))
    assert 2.5 * file < samples.most <= limit and samples.number > 10

    for step in (33, 34):
        tags.tag(Run.open(run), step, f"t{step}")
    with sampled(run) as samples:
        two.start("agreement", folder=tmp_path, steps=20, storage=limit, pause=0.02, tagged=True, **OPTIONS)
        first, second = two.values()
    assert first["committed"] == second["committed"] and first["skipped"]
    assert first["skipped"][-1] == 54, "the last step too"
    assert any("storage=: checkpoints are skipped" in warning for warning in first["warnings"])
    assert samples.most <= limit + file, "a checkpoint that was announced before rank 0 knew is saved all the same"
    assert {33, 34} <= {info.step for info in deepfreeze.checkpoints(run)}
