"""Ranks that go on in a run so that checkpoints would be lost end together, and none of them moves a checkpoint away."""

import pytest

import deepfreeze
from tests.support import kerases

pytestmark = [pytest.mark.ranks, pytest.mark.tensorflow]


@pytest.mark.full
@pytest.mark.parametrize("api", kerases.NAMES)
def test_all_ranks_end_together_before_a_checkpoint_would_be_lost(two, api, tmp_path):
    first, second = two.run("phases", api=api, folder=tmp_path)
    assert [error.split(":")[0] for error in first] == ["RunError", "RunError", "UnsupportedError", "RunError"]
    # Rank 0 alone has set its count back.
    assert [error.split(":")[0] for error in second] == ["RunError", "WorldError", "UnsupportedError", "EngineError"]
    steps = {name: [info.step for info in deepfreeze.checkpoints(tmp_path / name)] for name in ("phase", "back")}
    assert steps == {"phase": [1, 2, 3, 4], "back": [1, 2, 3, 4]}
    for name in ("anew", "set"):
        assert [info.step for info in deepfreeze.checkpoints(tmp_path / name)][:1] == [1]
        assert deepfreeze.latest(tmp_path / name).step <= 2
