"""A training into a store with granules: the large tensors begin at one in the file, and what is saved is the same, bit for bit."""

import keras
import pytest

import deepfreeze
from deepfreeze.inspect.verify import verify
from deepfreeze.store.run import Run
from deepfreeze.training import installing
from tests.support import trainings

pytestmark = pytest.mark.tensorflow

GRANULE = 1 << 16


@pytest.fixture
def granule(monkeypatch):
    """A function that sets the granule of the trainings to come: a rank alone has pages."""
    return lambda nbytes: monkeypatch.setattr(installing, "choose_granule", lambda *_: nbytes)


def first_large(run):
    """Where the first tensor of 64 KiB is in the newest checkpoint's model file."""
    placed = Run.open(run).structure(Run.open(run).manifest(deepfreeze.latest(run).step).structure).tensors
    return min(tensor.offset for tensor in placed if tensor.nbytes >= 1 << 16)


def wide():
    """A model whose first kernel, and its two slots, have 96 KB each."""
    return trainings.dense(keras, units=4000)


@pytest.mark.parametrize("capture", ["auto", pytest.param("graph", marks=pytest.mark.full)])
def test_a_file_with_a_gap_is_what_keras_saves_and_all_of_it_is_verified(tmp_path, granule, capture):
    granule(GRANULE)
    run = tmp_path / "run"
    trainings.train_undisturbed(keras, wide, tmp_path)
    model = trainings.alike(keras, wide)
    checkpoint = deepfreeze.Checkpoint(run, every=2, keep=9, capture=deepfreeze.Capture(path=capture))
    model.fit(trainings.data(5), verbose=0, shuffle=False, callbacks=[checkpoint])
    trainings.assert_run_is(run, tmp_path, [2, 4, 5])
    assert first_large(run) % GRANULE == 0
    checked = verify(run)
    assert not checked.problems and checked.step == 5
    other = wide()
    deepfreeze.restore(other, run)
    assert all((a == b).all() for a, b in zip(other.get_weights(), model.get_weights(), strict=True))


@pytest.mark.full
def test_captures_for_one_granule_do_not_serve_another(tmp_path, granule):
    model, found = wide(), []
    for nbytes in (4096, 4096, GRANULE, GRANULE):
        granule(nbytes)
        run = tmp_path / f"run-{len(found)}"
        model.fit(trainings.data(2), verbose=0, callbacks=[deepfreeze.Checkpoint(run, every=2)])
        found.append(first_large(run))
    assert found[0] == found[1] < found[2] == found[3] and found[2] % GRANULE == 0
