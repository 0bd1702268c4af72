"""A checkpoint is restored without asking Keras for its layout where names leave no doubt, and by asking where they do."""

import numpy as np
import pytest

import deepfreeze
from deepfreeze.state import dataset_paths
from tests.support import kerases, trainings

pytestmark = pytest.mark.tensorflow


@pytest.fixture
def asked(monkeypatch):
    """How often Keras was asked for its layout."""
    seen, really = [], dataset_paths.locate
    monkeypatch.setattr(dataset_paths, "locate", lambda state, *layout: seen.append(state) or really(state, *layout))
    return seen


def saved(keras, make, run):
    model = trainings.alike(keras, make)
    model.fit(trainings.data(2), verbose=0, shuffle=False, callbacks=[deepfreeze.Checkpoint(run, every=2)])
    return model


def weights(model):
    return [np.asarray(value) for value in model.get_weights()]


def test_the_same_program_s_model_is_restored_without_asking(keras, tmp_path, asked):
    keras.backend.clear_session()
    model = saved(keras, lambda: trainings.dense(keras), tmp_path / "run")
    asked.clear()
    keras.backend.clear_session()
    new = trainings.dense(keras)
    deepfreeze.restore(new, tmp_path / "run")
    assert not asked
    for got, wanted in zip(weights(new), weights(model), strict=True):
        assert np.array_equal(got, wanted)
    assert int(new.optimizer.iterations) == 2


def twins(keras, turned):
    """Two layers of one shape, made in one order or the other: Keras gives them each other's names."""
    first, second = keras.layers.Dense(6), keras.layers.Dense(6)
    layers = [second, first] if turned else [first, second]
    model = keras.Sequential([keras.Input((6,)), *layers, keras.layers.Dense(1)])
    model.compile("adam", "mse", jit_compile=False)
    return model


def test_layers_that_changed_names_are_restored_by_their_places(keras, tmp_path, asked):
    keras.backend.clear_session()
    model = saved(keras, lambda: twins(keras, turned=False), tmp_path / "run")
    asked.clear()
    keras.backend.clear_session()
    new = twins(keras, turned=True)
    assert [layer.name for layer in new.layers][:2] == [layer.name for layer in model.layers][:2][::-1]
    deepfreeze.restore(new, tmp_path / "run")
    assert len(asked) == 1
    for got, wanted in zip(weights(new), weights(model), strict=True):
        assert np.array_equal(got, wanted)


def test_a_second_model_of_the_process_has_other_names_and_is_asked_for(keras, tmp_path, asked):
    model = saved(keras, lambda: trainings.dense(keras), tmp_path / "run")
    asked.clear()
    new = trainings.dense(keras)
    deepfreeze.restore(new, tmp_path / "run")
    assert len(asked) == 1
    for got, wanted in zip(weights(new), weights(model), strict=True):
        assert np.array_equal(got, wanted)


def test_a_variable_in_two_datasets_is_asked_for(keras, tmp_path, asked):
    """Keras saves the embedding of a layer that keeps it in both layers' groups."""

    class Tied(keras.layers.Layer):
        def __init__(self, other):
            super().__init__()
            self.other = other

        def build(self, shape):
            self.table = self.other.kernel
            super().build(shape)

        def call(self, x):
            return x @ keras.ops.transpose(self.table) if hasattr(keras, "ops") else x @ self.table.T

    if not hasattr(keras, "ops"):
        pytest.skip("a layer of Keras 2 lists the other's variable as its own")

    def make():
        first = keras.layers.Dense(8)
        model = keras.Sequential([keras.Input((6,)), first, Tied(first), keras.layers.Dense(1)])
        model.compile("sgd", "mse", jit_compile=False)
        return model

    keras.backend.clear_session()
    model = saved(keras, make, tmp_path / "run")
    asked.clear()
    names = [placed.spec.name for placed in deepfreeze.read(tmp_path / "run").structure.tensors]
    keras.backend.clear_session()
    new = make()
    deepfreeze.restore(new, tmp_path / "run")
    assert bool(asked) == any("#" in name for name in names)
    for got, wanted in zip(weights(new), weights(model), strict=True):
        assert np.array_equal(got, wanted)


@kerases.needs_keras_3
def test_equal_names_do_not_prove_the_place_in_the_file(tmp_path, asked):
    """A model rebuilt as another class may have the same names and another layout: it is restored by name, and the file of its next
    checkpoint has the layout that stock Keras expects of the new class."""
    import keras

    def sequential():
        layers = [keras.layers.Dense(8, "relu", name="a"), keras.layers.Dense(1, name="b")]
        model = keras.Sequential([keras.Input((6,)), *layers], name="m")
        model.compile("adam", "mse", jit_compile=False)
        return model

    class Other(keras.Model):
        def __init__(self):
            super().__init__(name="m")
            self.first, self.last = keras.layers.Dense(8, "relu", name="a"), keras.layers.Dense(1, name="b")

        def call(self, x):
            return self.last(self.first(x))

    def other():
        model = Other()
        model(np.zeros((1, 6), np.float32))
        model.compile("adam", "mse", jit_compile=False)
        model.optimizer.build(model.trainable_variables)
        return model

    run = tmp_path / "run"
    keras.backend.clear_session()
    old = saved(keras, sequential, run)
    asked.clear()
    keras.backend.clear_session()
    model = other()
    deepfreeze.restore(model, run)
    assert not asked
    assert all(np.array_equal(a, b) for a, b in zip(weights(model), weights(old), strict=True))
    model.fit(trainings.data(2), verbose=0, shuffle=False, callbacks=[deepfreeze.Checkpoint(run, every=2)])
    fresh = other()
    fresh.load_weights(deepfreeze.latest(run).path / "model.weights.h5")
    assert all(np.array_equal(a, b) for a, b in zip(weights(model), weights(fresh), strict=True))
