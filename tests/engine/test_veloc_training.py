"""Real trainings whose checkpoints VELOC has: through the second backend, by captures that the graph takes into TensorFlow's memory."""

import pytest

import deepfreeze
from tests.support import h5, trainings, veloc

pytestmark = pytest.mark.tensorflow


@pytest.fixture
def keras():
    import keras

    return keras


@pytest.fixture
def configured(tmp_path, stub, monkeypatch):
    """The configuration file of the backend that trainings take now."""
    file = veloc.write_configuration(tmp_path / "veloc")
    veloc.use(monkeypatch, veloc.kind(stub, file))
    return file


def restored(stub, configured, file):
    """The model file of the newest checkpoint that VELOC has, and the checkpoint's step."""
    (attempt,) = veloc.attempts(configured)
    images, _ = veloc.restore(stub, configured, attempt, 1)
    return veloc.assemble(images, file), images[0].header["step"]


@pytest.mark.parametrize("lost", [pytest.param("nothing", marks=pytest.mark.full), "scratch"])
def test_a_training_goes_on_bit_exactly_from_velocs_files(keras, tmp_path, stub, configured, lost):
    def make():
        return trainings.dense(keras)

    x = trainings.data(7)
    trainings.train_undisturbed(keras, make, tmp_path, x)
    checkpoint = deepfreeze.Checkpoint(
        tmp_path / "run", every=2, final=False, capture=deepfreeze.Capture(path="graph"), wait_for="local"
    )
    trainings.alike(keras, make).fit(x.take(5), verbose=0, shuffle=False, callbacks=[checkpoint])
    assert sorted(checkpoint.stats.committed) == checkpoint.stats.steps == [2, 4]
    if lost == "scratch":
        for file in (configured.parent / "scratch").iterdir():
            file.unlink()
    file, step = restored(stub, configured, tmp_path / "restored.weights.h5")
    assert step == 4
    h5.assert_same(file, tmp_path / "4.weights.h5")
    model = make()
    model.optimizer.build(model.trainable_variables)
    model.load_weights(file)  # with the optimizer, as stock Keras loads it
    model.fit(x.skip(4), verbose=0, shuffle=False)
    model.save_weights(tmp_path / "after.weights.h5")
    h5.assert_same(tmp_path / "after.weights.h5", tmp_path / "7.weights.h5", trainings.METRICS)


def test_a_backend_without_memory_has_the_graph_capture(keras, tmp_path, stub, configured, caplog):
    with caplog.at_level("INFO", "deepfreeze"):
        checkpoint = deepfreeze.Checkpoint(tmp_path / "run", every=1, engine=deepfreeze.Engine(in_flight=1))
        trainings.dense(keras).fit(trainings.data(4), verbose=0, shuffle=False, callbacks=[checkpoint])
    assert "capturing by TensorFlow's own ops: the backend has no memory for captures" in caplog.text
    assert sorted(checkpoint.stats.committed) == [1, 2, 3, 4]


def test_a_checkpoint_that_veloc_has_torn_ends_training(keras, tmp_path, stub, configured, monkeypatch):
    monkeypatch.setenv("VELOC_STUB_TEAR", "2")
    checkpoint = deepfreeze.Checkpoint(tmp_path / "run", every=1, wait_for="external")
    with pytest.raises(deepfreeze.EngineError, match="is not as VELOC was given it"):
        trainings.dense(keras).fit(trainings.data(4), verbose=0, shuffle=False, callbacks=[checkpoint])
    assert restored(stub, configured, tmp_path / "restored.weights.h5")[1] == 1
    assert sorted(checkpoint.stats.committed) == [1]


def test_a_configuration_that_veloc_exits_at_is_an_error_of_fit(keras, tmp_path, configured):
    configured.unlink()
    with pytest.raises(deepfreeze.EngineError, match="No such file"):
        trainings.dense(keras).fit(
            trainings.data(2), verbose=0, callbacks=[deepfreeze.Checkpoint(tmp_path / "run", every=1)]
        )
