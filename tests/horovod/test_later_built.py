"""Models that are not built, or whose optimizers are not, when ``fit`` begins, on two ranks: both build them in the first trace, then
restore and broadcast together."""

import pytest

import deepfreeze
from deepfreeze.inspect.verify import verify
from tests.support import h5, kerases

pytestmark = [pytest.mark.ranks, pytest.mark.tensorflow]


# Horovod's own optimizer averages nothing in a train_step that calls apply_gradients, as a GAN's does.
CASES = [("keras", "sequential"), ("keras", "subclass"), ("keras", "vae"), ("keras", "gan")]
OLDER = [(kerases.NAMES[-1], "sequential"), (kerases.NAMES[-1], "subclass")]


@pytest.mark.full
@pytest.mark.parametrize(("api", "kind"), OLDER if kerases.KERAS_IS_2 else CASES + OLDER)
def test_what_the_first_batch_builds_resumes_bit_for_bit_on_two_ranks(two, api, kind, tmp_path):
    assert two.run("later", api=api, folder=tmp_path, kind=kind) == [[], []]
    found = deepfreeze.checkpoints(tmp_path / "run")
    assert [info.step for info in found] == [2, 3, 4, 6]
    assert all(info.world_size == 2 and verify(tmp_path / "run", info.step).ok for info in found)


DISTILLERS = [("keras", "distiller"), ("keras", "scaled"), ("keras", "in_list")]


@pytest.mark.full
@pytest.mark.parametrize(
    ("api", "kind"), [*([] if kerases.KERAS_IS_2 else DISTILLERS), (kerases.NAMES[-1], "distiller")]
)
def test_what_a_train_step_trains_resumes_bit_for_bit_on_two_ranks(two, api, kind, tmp_path):
    """The optimizers are built for what ``train_step`` trains, whether ``BroadcastState`` stands before ``Checkpoint`` or behind it."""
    assert two.run("later", api=api, folder=tmp_path, kind=kind) == [[], []]
    found = deepfreeze.checkpoints(tmp_path / "run")
    assert [info.step for info in found] == [2, 3, 4, 6] and all(verify(tmp_path / "run", one.step).ok for one in found)
    datasets = h5.datasets(found[-1].path / "model.weights.h5")
    slots = [path for path, value in datasets.items() if path.startswith("optimizer/") and value.shape]
    # Two for each variable of the student, none for the teacher. Keras saves those inside of a loss scale in two places.
    assert len(slots) == {"in_list": 0, "scaled": 16}.get(kind, 8)
