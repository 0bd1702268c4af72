"""What a checkpoint is good for, on each Keras: a new model gets all of it back, from DeepFreeze and from stock Keras."""

import numpy as np
import pytest

import deepfreeze
from tests.support import kerases, trainings
from tests.support.state import tensors

pytestmark = pytest.mark.tensorflow


def make(keras, seed=1):
    """Weights, statistics, moments and metrics."""
    keras.utils.set_random_seed(seed)
    layers = keras.layers
    stack = [layers.Dense(300, "relu"), layers.BatchNormalization(), layers.Dense(200, "relu"), layers.Dense(1)]
    model = keras.Sequential([keras.Input((trainings.FEATURES,)), *stack])
    model.compile(keras.optimizers.Adam(1e-2), "mse", metrics=["mae"], jit_compile=False)
    return model


def train(model, steps=3, callbacks=()):
    model.fit(trainings.data(steps), verbose=0, shuffle=False, callbacks=list(callbacks))


def values(model):
    """By path; metrics are reset at every epoch, and a new model has none yet."""
    found = {tensor.path: np.asarray(tensor.variable) for tensor in tensors(model)}
    return {path: array.tobytes() for path, array in found.items() if path.split("/")[0] not in ("metrics", "seeds")}


def trained(keras, run):
    """A model whose checkpoint is in the run."""
    model = make(keras)
    train(model, callbacks=[deepfreeze.Checkpoint(run, every=3, save_config=True)])
    return model


@pytest.fixture(scope="module")
def saved(keras, tmp_path_factory):
    """A trained model and its run, both to be left as they are."""
    run = tmp_path_factory.mktemp("saved") / "run"
    return trained(keras, run), run


def test_a_new_model_is_restored_and_trains_on_to_the_same_values(keras, tmp_path):
    """A new model is restored bit for bit, and trains on to the same values."""
    run = tmp_path / "run"
    model = trained(keras, run)
    other = make(keras, seed=2)
    assert deepfreeze.restore(other, run).step == 3
    assert values(other) == values(model)
    for each in (model, other):
        train(each, 4)
    assert values(other) == values(model)


def test_stock_keras_loads_the_file_into_a_new_model(keras, saved):
    model, run = saved
    other = make(keras, seed=2)
    train(other, 1)
    other.load_weights(deepfreeze.latest(run).path / "model.weights.h5")
    assert values(other) == values(model)


def test_the_run_is_read_without_a_model_and_says_whose_it_is(keras, saved):
    model, run = saved
    with deepfreeze.read(run) as tensors:
        held = sorted(tensors[name].tobytes() for name in tensors)
    assert set(values(model).values()) <= set(held)
    framework = deepfreeze.latest(run).framework
    assert framework["api"] == keras.__name__ and framework["keras"] == keras.__version__


def test_an_exported_model_is_loaded_by_stock_keras(keras, saved, tmp_path):
    model, run = saved
    deepfreeze.export(run, tmp_path / "whole.keras")
    loaded = keras.models.load_model(tmp_path / "whole.keras")
    x = np.random.default_rng(3).random((4, trainings.FEATURES), np.float32)
    assert np.array_equal(loaded.predict(x, verbose=0), model.predict(x, verbose=0))
    assert values(loaded) == values(model)


@kerases.one_will_do
def test_weights_are_transferred_by_name(keras, saved):
    model, run = saved
    other = make(keras, seed=2)
    deepfreeze.transfer(other, run)
    assert all(np.array_equal(a, b) for a, b in zip(other.get_weights(), model.get_weights(), strict=True))


@pytest.mark.parametrize("name", ["Adam", "SGD"])
def test_a_legacy_optimizer_is_refused_before_the_run_is_touched(keras, name, tmp_path):
    """A legacy optimizer is refused with the reason before the run is touched."""
    if not kerases.is_2(keras):
        pytest.skip("Keras 3 has none")
    model = trainings.dense(keras, getattr(keras.optimizers.legacy, name)())
    with pytest.raises(deepfreeze.UnsupportedError, match=f"the legacy {name}. Use the current one"):
        train(model, callbacks=[deepfreeze.Checkpoint(tmp_path / "run")])
    assert not (tmp_path / "run").exists()


def test_a_layer_that_saves_something_else_is_restored_as_plain_h5(keras, tmp_path):
    """A layer that saves something else than its variables is restored, and its file is never passed off as Keras's."""

    class Doubling(keras.layers.Dense):
        """What it saves is twice its kernel."""

        def save_own_variables(self, store):
            store["0"], store["1"] = 2 * np.asarray(self.kernel), np.asarray(self.bias)

    def doubling(seed):
        keras.utils.set_random_seed(seed)
        model = keras.Sequential([keras.Input((trainings.FEATURES,)), Doubling(8), keras.layers.Dense(1)])
        model.compile(keras.optimizers.Adam(1e-2), "mse", jit_compile=False)
        return model

    model = doubling(1)
    train(model, callbacks=[deepfreeze.Checkpoint(tmp_path / "run", every=3)])
    restored, given = doubling(2), doubling(3)
    assert deepfreeze.restore(restored, tmp_path / "run").layout == "plain-h5"
    assert values(restored) == values(model)
    assert len(deepfreeze.transfer(given, tmp_path / "run", verbose=0).loaded) == 4
    assert all(np.array_equal(a, b) for a, b in zip(given.get_weights(), model.get_weights(), strict=True))
    for each in (model, restored):
        train(each, 2)
    assert values(restored) == values(model)
    with pytest.raises(deepfreeze.UnsupportedError, match="plain-h5"):
        deepfreeze.export(tmp_path / "run", tmp_path / "a.weights.h5")
    deepfreeze.export(tmp_path / "run", tmp_path / "a.safetensors")
