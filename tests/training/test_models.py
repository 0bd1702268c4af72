"""Whatever the model is made of, each checkpoint is what Keras would have saved after that step."""

import os
import shutil

import keras as keras3
import numpy as np
import pytest
import tensorflow as tf

import deepfreeze
from tests.support import h5, hand_made, jobs, kerases, trainings

pytestmark = pytest.mark.tensorflow
MANY = int(os.environ.get("DEEPFREEZE_TEST_VARIABLES", "2000"))


@kerases.one_will_do
def test_a_layer_that_is_used_twice_is_saved_once(keras, tmp_path):
    trainings.assert_as_keras_saves_it(keras, lambda: hand_made.shared(keras), tmp_path)


@kerases.one_will_do
def test_a_layer_that_keeps_the_variable_of_another_is_saved_with_it(keras, tmp_path):
    trainings.assert_as_keras_saves_it(keras, lambda: hand_made.tied(keras), tmp_path)


@kerases.one_will_do
def test_models_within_models_are_saved(keras, tmp_path):
    trainings.assert_as_keras_saves_it(keras, lambda: hand_made.nested(keras), tmp_path)


@kerases.one_will_do
def test_embeddings_with_sparse_gradients_are_saved(keras, tmp_path):
    def make():
        inputs = keras.Input((3,), dtype="int32")
        x = keras.layers.Flatten()(keras.layers.Embedding(1000, 40)(inputs))
        return hand_made.compiled(keras, keras.Model(inputs, keras.layers.Dense(1)(x)))

    rng = np.random.default_rng(0)
    batches = tf.data.Dataset.from_tensor_slices((rng.integers(0, 1000, (10, 3)), rng.random((10, 1)))).batch(2)
    trainings.assert_as_keras_saves_it(keras, make, tmp_path, batches)


@kerases.one_will_do
def test_frozen_layers_are_saved(keras, tmp_path):
    trainings.assert_as_keras_saves_it(keras, lambda: hand_made.frozen(keras), tmp_path, trainings.data(3))


def test_variables_of_every_dtype_and_shape_are_saved_and_restored(tmp_path):
    def trained():
        model = hand_made.of_every_dtype(keras3)
        hand_made.fill(model)
        return model

    values = hand_made.fill(hand_made.of_every_dtype(keras3))

    def has_them(model):
        held = model.layers[0].held
        return all(np.array_equal(np.asarray(a).astype(int), b) for a, b in zip(held, values, strict=True))

    trainings.assert_as_keras_saves_it(keras3, trained, tmp_path, trainings.data(2))
    again, stock = hand_made.of_every_dtype(keras3), hand_made.of_every_dtype(keras3)
    deepfreeze.restore(again, tmp_path / "run")
    stock.load_weights(deepfreeze.latest(tmp_path / "run").path / "model.weights.h5")
    assert has_them(again) and has_them(stock)


OWN_NAMES = {
    "ordered": ("kernel", "bias"),
    "reordered": ("bias", "kernel"),
    "some": ("kernel",),
}


@pytest.mark.parametrize("names", OWN_NAMES.values(), ids=OWN_NAMES)
def test_layers_that_choose_what_they_save_are_saved_so_or_wholly(keras, names, tmp_path, caplog):
    """Layers that choose what they save are saved so, or else by all their variables."""

    def make():
        return hand_made.named(keras, names)

    run = tmp_path / "run"
    if kerases.is_2(keras) and names != ("kernel", "bias"):
        # Keras 2's variables have no paths: what is stored is told by its order.
        model = trainings.train_undisturbed(keras, make, tmp_path)
        callbacks = [deepfreeze.Checkpoint(run, every=5)]
        trainings.alike(keras, make).fit(trainings.data(5), verbose=0, shuffle=False, callbacks=callbacks)
        assert "stock Keras can't load it, deepfreeze.restore can" in caplog.text
        again = make()
        deepfreeze.restore(again, run)
        assert all(np.array_equal(a, b) for a, b in zip(again.get_weights(), model.get_weights(), strict=True))
        return
    trainings.assert_as_keras_saves_it(keras, make, tmp_path, more=[] if "bias" in names else ["*.bias"])
    paths = h5.datasets(deepfreeze.latest(run).path / "model.weights.h5")
    assert {path.rpartition("/")[2] for path in paths if "/the_" in path} == {f"the_{name}" for name in names}


@kerases.cases([False, True], both=[True], name="save_config")
def test_what_the_user_has_put_on_an_instance_is_there_afterwards(keras, save_config, tmp_path):
    model = trainings.dense(keras)
    layer, called = model.layers[0], []

    def own(store, theirs=layer.save_own_variables):
        called.append("save_own_variables")
        theirs(store)

    def step(data, theirs=model.train_step):
        called.append("train_step")
        return theirs(data)

    layer.save_own_variables, model.train_step = own, step
    for _ in range(2):
        checkpoint = deepfreeze.Checkpoint(tmp_path / "run", every=2, save_config=save_config)
        model.fit(trainings.data(2), verbose=0, callbacks=[checkpoint])
        assert vars(layer)["save_own_variables"] is own
        checkpoint.close()
        assert vars(model)["train_step"] is step
        assert set(called) == {"save_own_variables", "train_step"}
        called.clear()
    deepfreeze.restore(model, tmp_path / "run")
    assert vars(layer)["save_own_variables"] is own and set(called) <= {"save_own_variables"}
    assert not any("save_own_variables" in vars(one) for one in (model, *model.layers[1:], model.optimizer))


@kerases.needs_keras_3
def test_layers_that_transform_what_they_save_are_saved_by_variables(tmp_path, caplog):
    """Layers that transform what they save are saved by their variables, and restored."""

    model = hand_made.lora(keras3)
    checkpoint = deepfreeze.Checkpoint(tmp_path / "run", every=2)
    model.fit(trainings.data(3), verbose=0, shuffle=False, callbacks=[checkpoint])
    assert "stock Keras can't load it, deepfreeze.restore can" in caplog.text
    assert "nothing in the program is to be changed" in caplog.text and "save_own_variables" not in caplog.text
    again = hand_made.lora(keras3)
    deepfreeze.restore(again, tmp_path / "run")
    for mine, theirs in zip(again.variables, model.variables, strict=True):
        assert np.array_equal(mine, theirs) or mine.path.startswith("mean_metric")
    for mine, theirs in zip(again.optimizer.variables, model.optimizer.variables, strict=True):
        assert np.array_equal(mine, theirs)
    with deepfreeze.read(tmp_path / "run") as tensors:
        assert any("lora" in name for name in tensors)


@kerases.one_will_do
def test_metrics_with_state_are_saved(keras, tmp_path):
    trainings.assert_as_keras_saves_it(keras, lambda: hand_made.with_metrics(keras), tmp_path)


@kerases.cases([1, 4], both=[4], name="per_execution", often=[])
def test_a_training_compiled_by_xla_is_captured_between_its_executions(keras, per_execution, tmp_path):
    def make():
        return trainings.dense(keras, jit_compile=True, steps_per_execution=per_execution)

    trainings.train_undisturbed(keras, make, tmp_path, trainings.data(12))
    callbacks = [deepfreeze.Checkpoint(tmp_path / "run", every=3, keep=9)]
    trainings.alike(keras, make).fit(trainings.data(12), verbose=0, shuffle=False, callbacks=callbacks)
    expected = {1: [3, 6, 9, 12], 4: [4, 8, 12]}
    trainings.assert_run_is(tmp_path / "run", tmp_path, expected[per_execution])


def sees_a_gpu(monkeypatch):
    """Keras sees a GPU, which TensorFlow does not use: as after ``tf.config.set_visible_devices([], "GPU")``."""
    devices = [*tf.config.list_physical_devices(), tf.config.PhysicalDevice("/physical_device:GPU:0", "GPU")]
    monkeypatch.setattr(
        tf.config, "list_physical_devices", lambda kind=None: [d for d in devices if kind in (None, d.device_type)]
    )


@kerases.one_will_do
@pytest.mark.parametrize("gpu", [False, True], ids=["cpu", "gpu"])
@pytest.mark.parametrize(
    "told", [{}, pytest.param({"jit_compile": "auto"}, marks=pytest.mark.full)], ids=["default", "auto"]
)
def test_what_keras_makes_of_its_default_is_saved_and_xla_is_told(keras, told, gpu, tmp_path, monkeypatch, caplog):
    """Whatever keras makes of its default is saved and the log tells of xla."""
    if kerases.is_2(keras) and gpu:
        pytest.skip("Keras 2 does not ask for devices")
    # Keras 3 compiles by XLA where it sees a GPU; Keras 2 not, unless it is told something, "auto" too.
    by_xla = bool(told) if kerases.is_2(keras) else gpu
    if gpu:
        sees_a_gpu(monkeypatch)

    def make():
        model = keras.Sequential(
            [keras.Input((trainings.FEATURES,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(1)]
        )
        model.compile("adam", "mse", **told)
        return model

    with caplog.at_level("INFO", "deepfreeze"):
        assert trainings.assert_as_keras_saves_it(keras, make, tmp_path, trainings.data(3)) == [1, 2, 3]
    assert ("compiled by XLA (jit_compile)" in caplog.text) == by_xla


@pytest.mark.parametrize("told", [True, "auto"])
def test_xla_under_horovod_is_refused_with_the_reason(keras, told, monkeypatch):
    from deepfreeze.frameworks.tensorflow.refusals import refuse

    sees_a_gpu(monkeypatch)
    model = trainings.dense(keras, jit_compile=told)
    with pytest.raises(deepfreeze.UnsupportedError, match=r"Horovod's ops.*\"auto\", its default.*jit_compile=False"):
        refuse(model, None, averages_in_graph=True)
    # A loop of the user's own is not what Keras would compile.
    model = keras.Sequential([keras.Input((trainings.FEATURES,)), keras.layers.Dense(1)])
    model.optimizer = keras.optimizers.SGD()
    refuse(model, None, averages_in_graph=True)


def test_an_execution_of_tuned_length_is_captured_at_its_end(tmp_path):
    """An execution whose number of steps Keras tunes is captured at its end."""
    keras = pytest.importorskip(kerases.NAMES[-1])
    if not kerases.is_2(keras):
        pytest.skip("of Keras 2 alone")

    def make():
        return trainings.dense(keras, steps_per_execution="auto")

    assert trainings.assert_as_keras_saves_it(keras, make, tmp_path) == [1, 2, 3, 4, 5]


@kerases.one_will_do
@pytest.mark.parametrize("variables", [400, pytest.param(MANY, marks=pytest.mark.full)], ids=["few", "many"])
def test_very_many_variables_are_saved(keras, variables, tmp_path):
    class Many(keras.layers.Layer):
        """Many scalars. Keras 2 compares all variables of a list with each other whenever it is asked for them, so no more."""

        def build(self, _):
            self.parts = [self.add_weight(shape=(), name=f"part_{n}", trainable=False) for n in range(200)]

        def call(self, x):
            return x + self.parts[0]

    layers = [
        keras.layers.Input((trainings.FEATURES,)),
        *(Many() for _ in range(variables // 200)),
        keras.layers.Dense(1),
    ]
    model = hand_made.compiled(keras, keras.Sequential(layers))
    for n, part in enumerate(part for layer in model.layers[:-1] for part in layer.parts):
        part.assign(-n)
    checkpoint = deepfreeze.Checkpoint(tmp_path / "run", every=2)
    model.fit(trainings.data(2), verbose=0, shuffle=False, callbacks=[checkpoint])
    with deepfreeze.read(tmp_path / "run") as tensors:
        assert len(tensors) > variables
        negative = sorted(-float(value) for value in tensors.values() if value.shape == () and value < 0)
        assert negative == list(range(1, variables))


@pytest.mark.full
def test_a_variable_above_two_gigabytes_is_saved_and_restored(keras, tmp_path):
    available = next(line for line in open("/proc/meminfo") if line.startswith("MemAvailable"))
    if int(available.split()[1]) < 12 << 20 or shutil.disk_usage(tmp_path).free < 8e9:
        pytest.skip("needs 12 GB of memory and 8 GB of disk")
    jobs.run("large.py", keras.__name__, tmp_path)
    shutil.rmtree(tmp_path / "run")  # pytest keeps the directories of three runs
