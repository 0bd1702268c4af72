"""A real model's checkpoint as a file for other programs: stock Keras loads it, or it is told apart from what Keras loads."""

from __future__ import annotations

import json
import re
import tracemalloc
import zipfile

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from safetensors.numpy import load_file

import deepfreeze
from deepfreeze.cli.main import main
from deepfreeze.errors import NotFoundError, UnsupportedError
from deepfreeze.exports.export import export
from deepfreeze.frameworks.tensorflow.variables import tf_variable
from deepfreeze.state.keras_objects import variable_name
from tests.support import h5, kerases

pytestmark = pytest.mark.tensorflow
SUFFIXES = (".weights.h5", ".safetensors", ".keras")


def make(api, activation="relu"):
    api.utils.set_random_seed(1)
    layers = api.layers
    model = api.Sequential(
        [
            api.Input((8,)),
            layers.Dense(30, activation),
            layers.BatchNormalization(),
            layers.Dropout(0.1),
            layers.Dense(1),
        ]
    )
    model.compile(api.optimizers.Adam(1e-2), "mse", metrics=["mae"], jit_compile=False)
    return model


def fit(model, run, steps=3, **options):
    rng = np.random.default_rng(0)
    x, y = rng.random((steps * 4, 8), np.float32), rng.random((steps * 4, 1), np.float32)
    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(4)
    callbacks = [deepfreeze.Checkpoint(run, every=steps, **options)]
    model.fit(data, verbose=0, shuffle=False, callbacks=callbacks)
    return model


X = np.linspace(-1, 1, 80, dtype=np.float32).reshape(10, 8)


def test_stock_keras_loads_each_format_with_the_very_values(api, tmp_path):
    model = fit(make(api), tmp_path / "run")
    export(tmp_path / "run", tmp_path / "a.weights.h5")
    other = make(api)
    other.load_weights(tmp_path / "a.weights.h5")
    model.save_weights(tmp_path / "stock.weights.h5")
    h5.assert_same(tmp_path / "a.weights.h5", tmp_path / "stock.weights.h5")

    export(tmp_path / "run", tmp_path / "a.keras")
    model.save(tmp_path / "stock.keras")
    loaded, stock = (api.models.load_model(tmp_path / name) for name in ("a.keras", "stock.keras"))
    for one, name in ((loaded, "loaded"), (stock, "loaded-stock")):
        one.save_weights(tmp_path / f"{name}.weights.h5")
    h5.assert_same(tmp_path / "loaded.weights.h5", tmp_path / "loaded-stock.weights.h5")
    if api is keras:  # tf_keras leaves the optimizer's state out when it loads a whole model, its own too
        h5.assert_same(tmp_path / "loaded.weights.h5", tmp_path / "stock.weights.h5")
        assert int(loaded.optimizer.iterations) == 3
    assert np.array_equal(loaded.predict(X, verbose=0), model.predict(X, verbose=0))
    assert np.array_equal(other.predict(X, verbose=0), model.predict(X, verbose=0))

    export(tmp_path / "run", tmp_path / "a.safetensors")
    found = load_file(tmp_path / "a.safetensors")
    assert len(found) == len(model.weights) == 8
    by_shape = sorted((value.shape, value.tobytes()) for value in found.values())
    assert by_shape == sorted((tuple(v.shape), np.asarray(v).tobytes()) for v in model.weights)
    export(tmp_path / "run", tmp_path / "all.safetensors", optimizer=True)
    with deepfreeze.read(tmp_path / "run") as tensors:
        assert set(load_file(tmp_path / "all.safetensors")) == set(tensors)


def test_an_archive_has_what_keras_would_put_there(api, tmp_path):
    model = fit(make(api), tmp_path / "run")
    export(tmp_path / "run", tmp_path / "a.keras")
    model.save(tmp_path / "stock.keras")
    with zipfile.ZipFile(tmp_path / "a.keras") as ours, zipfile.ZipFile(tmp_path / "stock.keras") as stock:
        assert sorted(ours.namelist()) == sorted(stock.namelist())
        assert json.loads(ours.read("config.json")) == json.loads(stock.read("config.json"))
        assert json.loads(ours.read("metadata.json")).keys() == json.loads(stock.read("metadata.json")).keys()
        assert ours.testzip() is None
    export(tmp_path / "run", tmp_path / "b.keras")
    assert (tmp_path / "a.keras").read_bytes() == (tmp_path / "b.keras").read_bytes()


@kerases.one_api_will_do
def test_a_checkpoint_of_weights_becomes_a_model_to_train_afresh(api, tmp_path):
    """A checkpoint of weights alone becomes a model with a fresh optimizer."""
    model = fit(make(api), tmp_path / "run", state="weights")
    export(tmp_path / "run", tmp_path / "a.keras")
    loaded = api.models.load_model(tmp_path / "a.keras")
    assert np.array_equal(loaded.predict(X, verbose=0), model.predict(X, verbose=0))


def test_each_checkpoint_keeps_its_own_attempts_configuration(tmp_path):
    """Models of one structure, with other activations, one after the other in one run."""
    fit(make(keras, "relu"), tmp_path / "run", 3, keep=5)
    fit(make(keras, "tanh"), tmp_path / "run", 3, keep=5)
    fit(make(keras, "sigmoid"), tmp_path / "run", 3, keep=5, save_config=False)
    assert [info.step for info in deepfreeze.checkpoints(tmp_path / "run")] == [3, 6, 9]
    for step, activation in ((3, "relu"), (6, "tanh")):
        export(tmp_path / "run", tmp_path / f"{step}.keras", step)
        assert keras.models.load_model(tmp_path / f"{step}.keras").layers[0].activation.__name__ == activation
    with pytest.raises(NotFoundError, match="save_config=False"):
        export(tmp_path / "run", tmp_path / "9.keras")
    assert not (tmp_path / "9.keras").exists()


@kerases.one_api_will_do
def test_storing_the_configuration_leaves_the_model_as_it_was(api, tmp_path):
    with_config = fit(make(api), tmp_path / "a")
    without = fit(make(api), tmp_path / "b", save_config=False)
    left, right = (np.concatenate([np.ravel(v) for v in m.get_weights()]) for m in (with_config, without))
    assert left.tobytes() == right.tobytes()
    assert not any("save_own_variables" in vars(layer) for layer in [with_config, *with_config.layers])
    assert not (tmp_path / "b" / "configs").exists()


class Own(keras.Model):
    """A model whose configuration has a value that JSON does not have."""

    def __init__(self, thing):
        super().__init__()
        self.dense, self.thing = keras.layers.Dense(1), thing

    def call(self, x):
        return self.dense(x)

    def get_config(self):
        return {"thing": float("nan")}


def without_json():
    model = Own(object())
    model(X)
    return model


def with_assets():
    words = keras.layers.TextVectorization(max_tokens=5, output_sequence_length=4)
    words.adapt(["a b", "b c"])
    inputs = keras.Input((8,))
    model = keras.Model(inputs, keras.layers.Dense(1)(inputs))
    model.words = words  # tracked, and saved with its vocabulary
    return model


@pytest.mark.parametrize(("make_model", "reason"), [(without_json, "get_config"), (with_assets, "assets")])
def test_a_model_that_keras_can_not_describe_is_saved_without_a_word(make_model, reason, tmp_path, capfd, recwarn):
    """Its training prints and warns nothing. The export says that there is no configuration, and the run's log why."""
    model = make_model()
    model.compile("sgd", "mse", jit_compile=False)
    capfd.readouterr()
    fit(model, tmp_path / "run", verbose=0)
    assert capfd.readouterr() == ("", "") and not [one for one in recwarn if "deepfreeze" in str(one.message)]
    with pytest.raises(NotFoundError, match="could not describe"):
        export(tmp_path / "run", tmp_path / "a.keras")
    assert main(["log", str(tmp_path / "run")]) == 0 and reason in capfd.readouterr().out


def test_a_run_that_can_not_take_the_configuration_is_trained_on(tmp_path, caplog):
    run = tmp_path / "run"
    fit(make(keras), run, save_config=False)
    (run / "configs").write_text("in the way")
    fit(make(keras), run)
    assert any("configuration is not stored" in record.message for record in caplog.records)
    assert [info.step for info in deepfreeze.checkpoints(run)][-1] == 6


def test_several_optimizers_are_none_of_the_weights(tmp_path):
    model = make(keras)
    model.second = keras.optimizers.SGD(0.1, momentum=0.9)
    model.second.build(model.trainable_variables)
    fit(model, tmp_path / "run")
    export(tmp_path / "run", tmp_path / "a.safetensors")
    assert len(load_file(tmp_path / "a.safetensors")) == len(model.weights)


# Layouts that Keras has no file for


def doubling(api):
    """A layer that saves something else than its variables' values."""

    class Doubling(api.layers.Dense):
        """See above."""

        def save_own_variables(self, store):
            store["0"], store["1"] = 2 * np.asarray(self.kernel), np.asarray(self.bias)

        def load_own_variables(self, store):
            self.kernel.assign(np.asarray(store["0"]) / 2)
            self.bias.assign(store["1"])

    return Doubling(30, name="one")


def lora(api):
    """A low rank beside a kernel that is frozen: Keras saves their sum, in the kernel's place."""
    return api.layers.Dense(30, name="one", lora_rank=2)


def transforming(api, first, seed=1, quantised=None):
    """A model of one such layer and an ordinary one."""
    api.utils.set_random_seed(seed)
    layer = first(api)
    model = api.Sequential(
        [api.Input((8,)), layer, api.layers.BatchNormalization(name="norm"), api.layers.Dense(1, name="two")]
    )
    if quantised:
        layer.quantize(quantised)
    model.compile(api.optimizers.Adam(1e-2), "mse", metrics=["mae"], jit_compile=False)
    return model


def plain_dense(api):
    """What Keras saves as it is."""
    return api.layers.Dense(30, name="one")


# The layer, how it is quantised, and whether Keras has a file for it.
TRANSFORMING = {
    "own": (keras, doubling, None, "plain-h5"),
    "own_2": (tf_keras, doubling, None, "plain-h5"),
    "lora": (keras, lora, None, "plain-h5"),
    "lora_int8": (keras, lora, "int8", "plain-h5"),
    "int8": (keras, plain_dense, "int8", "keras-h5"),
}


@pytest.mark.parametrize(
    ("api", "first", "quantised", "layout"),
    [
        pytest.param(*of, id=name, marks=[pytest.mark.full] if "lora" in name else [])
        for name, of in TRANSFORMING.items()
    ],
)
def test_what_keras_can_not_load_is_told_apart_and_still_saved(api, first, quantised, layout, tmp_path, capsys):
    """What keras can not load is told apart and goes through everything else."""
    model = fit(transforming(api, first, 1, quantised), tmp_path / "run")
    own = {variable_name(v): np.asarray(tf_variable(v)) for v in model.weights}
    assert deepfreeze.latest(tmp_path / "run").layout == layout
    assert main(["show", str(tmp_path / "run")]) == 0
    assert re.search(rf"^layout +{layout}", capsys.readouterr().out, re.MULTILINE)

    with deepfreeze.read(tmp_path / "run") as tensors:
        assert {name: tensors[name].tobytes() for name in own} == {name: v.tobytes() for name, v in own.items()}
    export(tmp_path / "run", tmp_path / "a.safetensors")
    found = load_file(tmp_path / "a.safetensors")
    assert {name: v.tobytes() for name, v in found.items()} == {name: v.tobytes() for name, v in own.items()}

    restored = transforming(api, first, 2, quantised)
    deepfreeze.restore(restored, tmp_path / "run")
    given = transforming(api, first, 3, quantised)
    report = deepfreeze.transfer(given, tmp_path / "run", verbose=0)
    assert len(report.loaded) == len(own) and not (report.skipped or report.missing or report.mismatched)
    for other in (restored, given):
        assert [np.asarray(v).tobytes() for v in other.get_weights()] == [v.tobytes() for v in model.get_weights()]
    assert int(np.asarray(tf_variable(restored.optimizer.iterations))) == 3

    for suffix in (".weights.h5", ".keras"):
        if layout == "plain-h5":
            with pytest.raises(UnsupportedError, match=r"layout plain-h5.*\.safetensors"):
                export(tmp_path / "run", tmp_path / f"a{suffix}")
            assert main(["export", str(tmp_path / "run"), str(tmp_path / f"a{suffix}")]) == 1
            assert ".safetensors" in capsys.readouterr().err and not (tmp_path / f"a{suffix}").exists()
        else:
            export(tmp_path / "run", tmp_path / f"a{suffix}")
    if layout == "keras-h5":
        stock = transforming(api, first, 4, quantised)
        stock.load_weights(tmp_path / "a.weights.h5")
        assert [v.tobytes() for v in stock.get_weights()] == [v.tobytes() for v in model.get_weights()]
    else:
        with pytest.raises((ValueError, KeyError)):  # so refusing is right
            transforming(api, first, 4, quantised).load_weights(
                deepfreeze.latest(tmp_path / "run").path / "model.weights.h5"
            )


def test_the_base_of_a_lora_model_is_transferred_into_one_without(tmp_path):
    """The base of a model with low ranks is transferred into one without."""
    model = fit(transforming(keras, lora), tmp_path / "run")
    plain = transforming(keras, plain_dense, 2)
    report = deepfreeze.transfer(plain, tmp_path / "run", verbose=0)
    assert {one.name.split("/")[-1] for one in report.skipped} == {"lora_kernel_a", "lora_kernel_b"}
    assert len(report.loaded) == len(plain.weights) and not report.missing
    assert np.array_equal(plain.layers[0].kernel, model.layers[0]._kernel)


def test_a_module_s_checkpoint_is_no_file_of_keras_either(tmp_path):
    module = tf.Module()
    module.weight = tf.Variable([1.0, 2.0], name="weight")
    optimizer = keras.optimizers.SGD(0.1)
    with deepfreeze.capture(optimizer, module, tmp_path / "run", every=1, local=None) as checkpoint:
        optimizer.apply_gradients([(tf.ones(2), module.weight)])
        checkpoint.step()
    assert deepfreeze.latest(tmp_path / "run").layout == "plain-h5"
    with pytest.raises(UnsupportedError, match=r"\.safetensors"):
        export(tmp_path / "run", tmp_path / "a.weights.h5")
    export(tmp_path / "run", tmp_path / "a.safetensors")
    assert np.array_equal(load_file(tmp_path / "a.safetensors")["weight"], module.weight.numpy())


def test_one_tensor_is_in_memory_at_a_time(tmp_path):
    layers = [keras.Input((700,)), *(keras.layers.Dense(700) for _ in range(8))]
    model = keras.Sequential(layers)
    model.compile("adam", "mse", jit_compile=False)
    x = np.zeros((3, 700), np.float32)
    model.fit(x, x, batch_size=1, verbose=0, callbacks=[deepfreeze.Checkpoint(tmp_path / "run", every=3)])
    for suffix in SUFFIXES:
        tracemalloc.start()
        export(tmp_path / "run", tmp_path / f"a{suffix}")
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        tensor, whole = 700 * 700 * 4, (tmp_path / f"a{suffix}").stat().st_size
        assert peak < tensor + (4 << 20) < whole // 2, suffix
