"""Whatever the model is made of, each checkpoint is what Keras would have saved after that step."""

import keras as keras3
import numpy as np
import pytest
import tensorflow as tf

import deepfreeze
from tests.support import h5, kerases, trainings


def compiled(keras, model, optimizer="adam", loss="mse", **compiling):
    model.compile(optimizer, loss, **{"jit_compile": False, **compiling})
    return model


def test_a_layer_that_is_used_twice_is_saved_once(keras, tmp_path):
    inputs = keras.Input((trainings.FEATURES,))
    shared = keras.layers.Dense(trainings.FEATURES, "relu")
    model = compiled(keras, keras.Model(inputs, keras.layers.Dense(1)(shared(shared(inputs)))))
    trainings.assert_as_keras_saves_it(keras, model, tmp_path)


def test_a_layer_that_keeps_the_variable_of_another_is_saved_with_it(keras, tmp_path):
    class Tied(keras.layers.Layer):
        """The way back, by the same kernel."""

        def __init__(self, of):
            super().__init__()
            self.of = of

        def build(self, shape):
            self.kernel = self.of.kernel
            self.own = self.add_weight(shape=(trainings.FEATURES,), name="own")

        def call(self, x):
            return tf.matmul(x, self.kernel, transpose_b=True) + self.own

    first = keras.layers.Dense(8, use_bias=False)
    inputs = keras.Input((trainings.FEATURES,))
    model = compiled(keras, keras.Model(inputs, keras.layers.Dense(1)(Tied(first)(first(inputs)))))
    trainings.assert_as_keras_saves_it(keras, model, tmp_path)


def test_models_within_models_are_saved(keras, tmp_path):
    inner = keras.Sequential(
        [keras.Input((trainings.FEATURES,)), keras.layers.Dense(4), keras.layers.BatchNormalization()]
    )
    outer = keras.Sequential([keras.Input((trainings.FEATURES,)), inner, keras.layers.Dense(1)])
    trainings.assert_as_keras_saves_it(keras, compiled(keras, outer), tmp_path)


def test_embeddings_with_sparse_gradients_are_saved(keras, tmp_path):
    inputs = keras.Input((3,), dtype="int32")
    x = keras.layers.Flatten()(keras.layers.Embedding(1000, 40)(inputs))
    model = compiled(keras, keras.Model(inputs, keras.layers.Dense(1)(x)))
    rng = np.random.default_rng(0)
    batches = tf.data.Dataset.from_tensor_slices((rng.integers(0, 1000, (10, 3)), rng.random((10, 1)))).batch(2)
    trainings.assert_as_keras_saves_it(keras, model, tmp_path, batches)


def test_frozen_layers_are_saved_and_may_be_thawed_between_fits(keras, tmp_path):
    model = trainings.dense(keras)
    model.layers[0].trainable = False
    compiled(keras, model)
    (tmp_path / "frozen").mkdir()
    trainings.assert_as_keras_saves_it(keras, model, tmp_path / "frozen", trainings.data(3))
    model.layers[0].trainable = True
    compiled(keras, model)
    (tmp_path / "thawed").mkdir()
    trainings.assert_as_keras_saves_it(keras, model, tmp_path / "thawed", trainings.data(3))


SHAPES = [(), (0,), (3,), (2, 0, 3), (70_000,)]


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16", "int8", "int64", "uint8", "bool"])
def test_variables_of_every_dtype_and_shape_are_saved_and_restored(dtype, tmp_path):
    if kerases.KERAS_IS_2 and dtype == "bfloat16":
        pytest.skip("Keras 2 itself can't save bfloat16 variables")

    class Holder(keras3.layers.Layer):
        """Has variables that training leaves as they are."""

        def build(self, _):
            options = {"dtype": dtype, "initializer": "zeros", "trainable": False}
            self.held = [self.add_weight(shape=shape, name=f"held{n}", **options) for n, shape in enumerate(SHAPES)]

        def call(self, x):
            return x

    def make():
        keras3.utils.set_random_seed(1)
        layers = [keras3.Input((trainings.FEATURES,)), Holder(), keras3.layers.Dense(1)]
        model = compiled(keras3, keras3.Sequential(layers))
        model.optimizer.build(model.trainable_variables)
        return model

    rng = np.random.default_rng(0)
    values = [rng.integers(0, 2, shape) for shape in SHAPES]

    def has_them(model):
        held = model.layers[0].held
        return all(np.array_equal(np.asarray(a).astype(int), b) for a, b in zip(held, values, strict=True))

    model = make()
    for variable, value in zip(model.layers[0].held, values, strict=True):
        variable.assign(value)
    trainings.assert_as_keras_saves_it(keras3, model, tmp_path, trainings.data(2))
    again, stock = make(), make()
    deepfreeze.restore(again, tmp_path / "run")
    stock.load_weights(deepfreeze.latest(tmp_path / "run").path / "model.weights.h5")
    assert has_them(again) and has_them(stock)


def test_layers_that_name_what_they_save_are_saved_under_those_names(tmp_path):
    class Named(keras3.layers.Dense):
        """Stores its variables under names of its own."""

        def save_own_variables(self, store):
            store["the_kernel"], store["the_bias"] = self.kernel, self.bias

        def load_own_variables(self, store):
            self.kernel.assign(store["the_kernel"])
            self.bias.assign(store["the_bias"])

    layers = [keras3.Input((trainings.FEATURES,)), Named(4), keras3.layers.Dense(1)]
    trainings.assert_as_keras_saves_it(keras3, compiled(keras3, keras3.Sequential(layers)), tmp_path)
    paths = h5.datasets(deepfreeze.latest(tmp_path / "run").path / "model.weights.h5")
    assert any(path.endswith("the_kernel") for path in paths)


def test_a_model_that_its_first_batch_would_build_is_refused_before_the_run_is_touched_and_trains_once_built(
    keras, tmp_path
):
    model = compiled(keras, keras.Sequential([keras.layers.Dense(8, "relu"), keras.layers.Dense(1)]))
    with pytest.raises(deepfreeze.UnsupportedError, match=r"model\.build\(input_shape\)"):
        trainings.assert_as_keras_saves_it(keras, model, tmp_path)
    assert not (tmp_path / "run").exists()
    model(np.zeros((1, trainings.FEATURES), np.float32))
    trainings.assert_as_keras_saves_it(keras, model, tmp_path)


@kerases.needs_keras_3
def test_layers_that_transform_what_they_save_are_saved_by_their_variables_and_restored(tmp_path, caplog):
    def make():
        model = trainings.dense(keras3)
        model.layers[0].enable_lora(2)
        return compiled(keras3, model)

    model = make()
    checkpoint = deepfreeze.Checkpoint(tmp_path / "run", every=2)
    model.fit(trainings.data(3), verbose=0, shuffle=False, callbacks=[checkpoint])
    assert "stock Keras can't load it, deepfreeze.restore can" in caplog.text
    again = make()
    deepfreeze.restore(again, tmp_path / "run")
    for mine, theirs in zip(again.variables, model.variables, strict=True):
        assert np.array_equal(mine, theirs) or mine.path.startswith("mean_metric")
    for mine, theirs in zip(again.optimizer.variables, model.optimizer.variables, strict=True):
        assert np.array_equal(mine, theirs)
    with deepfreeze.read(tmp_path / "run") as tensors:
        assert any("lora" in name for name in tensors)


def test_metrics_with_state_are_saved(keras, tmp_path):
    metrics = ["mae", keras.metrics.MeanSquaredError(), keras.metrics.RootMeanSquaredError(name="rmse")]
    trainings.assert_as_keras_saves_it(keras, trainings.dense(keras, metrics=metrics), tmp_path)


@pytest.mark.parametrize("per_execution", [1, 4])
def test_a_training_compiled_by_xla_is_captured_between_its_executions(keras, per_execution, tmp_path):
    model = trainings.dense(keras, jit_compile=True, steps_per_execution=per_execution)
    checkpoint = deepfreeze.Checkpoint(tmp_path / "run", every=3, keep=9)
    callbacks = [trainings.save_weights(keras, tmp_path), checkpoint]
    model.fit(trainings.data(12), verbose=0, shuffle=False, callbacks=callbacks)
    expected = {1: [3, 6, 9, 12], 4: [4, 8, 12]}
    assert trainings.assert_run_is(tmp_path / "run", tmp_path) == expected[per_execution]


def test_xla_under_horovod_is_refused_with_the_reason(keras):
    from deepfreeze.freeze.capture import refuse

    with pytest.raises(deepfreeze.UnsupportedError, match=r"Horovod's ops"):
        refuse(trainings.dense(keras, jit_compile=True), None, averages_in_graph=True)


@pytest.mark.skipif(kerases.KERAS_IS_2, reason="Keras 2 itself takes minutes to make so many")
def test_twenty_thousand_variables_are_saved(tmp_path):
    class Many(keras3.layers.Layer):
        """Very many scalars."""

        def build(self, _):
            self.parts = [self.add_weight(shape=(), name=f"part_{n}", trainable=False) for n in range(20_000)]

        def call(self, x):
            return x + self.parts[0]

    layers = [keras3.Input((trainings.FEATURES,)), Many(), keras3.layers.Dense(1)]
    model = compiled(keras3, keras3.Sequential(layers), run_eagerly=True)
    for n, part in enumerate(model.layers[0].parts):
        part.assign(n)
    checkpoint = deepfreeze.Checkpoint(tmp_path / "run", every=2)
    model.fit(trainings.data(2), verbose=0, shuffle=False, callbacks=[checkpoint])
    with deepfreeze.read(tmp_path / "run") as tensors:
        assert len(tensors) > 20_000
        assert sorted(float(tensors[name]) for name in tensors if "part_" in name) == list(range(20_000))
