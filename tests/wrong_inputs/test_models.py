"""Models and machines that can't be trained with checkpoints, or not from these: refused before the first step."""

import shutil
import types

import keras as keras3
import numpy as np
import pytest
import tensorflow as tf

import deepfreeze
from tests.support import kerases, processes, trainings
from tests.support.refusals import refused

pytestmark = pytest.mark.tensorflow


@pytest.fixture(params=kerases.NAMES)
def keras(request):
    return pytest.importorskip(request.param)


def fit(model, run):
    return model.fit(trainings.data(2), verbose=0, callbacks=[deepfreeze.Checkpoint(run)])


WAYS = {
    "deepfreeze.Checkpoint": lambda model, run: deepfreeze.Checkpoint(run).open(model),
    "deepfreeze.capture": lambda model, run: deepfreeze.capture(model.optimizer, model, run),
}
both_ways = pytest.mark.parametrize("way", WAYS)


@both_ways
def test_a_model_in_a_distribution_strategy_is_refused(keras, way, tmp_path):
    with tf.distribute.OneDeviceStrategy("CPU:0").scope():
        model = trainings.dense(keras)
    expected, todo = "no tf.distribute strategy", "run one process per replica, with Horovod"
    refused(
        lambda: WAYS[way](model, tmp_path / "run"),
        deepfreeze.UnsupportedError, where=way, expected=expected, todo=todo, folder=tmp_path, model=model,
    )  # fmt: skip


def test_a_model_without_an_optimizer_is_refused(keras, tmp_path):
    """When training begins: ``open`` may come before ``compile``."""
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    checkpoint = deepfreeze.Checkpoint(tmp_path / "run")
    checkpoint.set_model(model)
    refused(
        checkpoint.on_train_begin,
        deepfreeze.UnsupportedError, where="deepfreeze.Checkpoint", expected="a compiled model",
        found="one without an optimizer", todo="model.compile(optimizer", folder=tmp_path, model=model,
    )  # fmt: skip
    refused(
        lambda: deepfreeze.capture(None, model, tmp_path / "run"),
        deepfreeze.OptionError, where="optimizer", expected="a Keras optimizer", found="None", folder=tmp_path,
    )  # fmt: skip


# Whatever a user hands a model to.
TAKERS = {
    **WAYS,
    "deepfreeze.restore": deepfreeze.restore,
    "deepfreeze.transfer": deepfreeze.transfer,
    "deepfreeze.DistributedOptimizer": lambda model, run: deepfreeze.DistributedOptimizer(model.optimizer),
    "deepfreeze.BroadcastState": lambda model, run: broadcast(model),
}


def broadcast(model):
    callback = deepfreeze.BroadcastState()
    callback.set_model(model)
    callback.on_train_begin()


# transfer serves any backend: it assigns layers' weights and nothing else.
@pytest.mark.parametrize("taker", sorted(TAKERS.keys() - {"deepfreeze.transfer"}))
def test_another_backend_of_keras_is_asked_for_first_and_refused_by_name(taker, tmp_path, monkeypatch, model, run):
    monkeypatch.setattr(keras3.backend, "backend", lambda: "jax")
    refused(
        lambda: TAKERS[taker](model, run),
        deepfreeze.UnsupportedError, where=taker, expected="Keras on TensorFlow", found="Keras on jax",
        todo="KERAS_BACKEND=tensorflow", folder=tmp_path, model=model,
    )  # fmt: skip


@kerases.needs_keras_3
@pytest.mark.parametrize("module", ["horovod.keras", "horovod.tensorflow.keras"])
@pytest.mark.parametrize("taker", TAKERS)
def test_horovods_own_optimizer_on_keras_3_is_refused_with_both_ways_out(taker, module, tmp_path, run):
    hvd = pytest.importorskip(module)
    model = trainings.dense(keras3, hvd.DistributedOptimizer(keras3.optimizers.Adam()))
    error = refused(
        lambda: TAKERS[taker](model, run),
        deepfreeze.UnsupportedError, where=taker, found="Horovod's own DistributedOptimizer", folder=tmp_path,
    )  # fmt: skip
    assert "deepfreeze.DistributedOptimizer" in error.todo and "TF_USE_LEGACY_KERAS=1" in error.todo


@both_ways
def test_an_elastic_job_is_refused_with_what_to_do(keras, way, tmp_path, monkeypatch):
    """As ``horovodrun --min-np`` starts its ranks."""
    monkeypatch.setenv("HOROVOD_ELASTIC", "1")
    model = trainings.dense(keras)
    refused(
        lambda: WAYS[way](model, tmp_path / "run"),
        deepfreeze.UnsupportedError, where=way, expected="ranks that stay", found="hvd.elastic", todo="horovodrun -np",
        folder=tmp_path, model=model,
    )  # fmt: skip


class OnGpu:
    """A variable of a model or of an optimizer, as it would be on a machine with a GPU."""

    name, path, dtype, shape, trainable = "net/kernel", "net/kernel", tf.float32, (2, 2), False
    value = types.SimpleNamespace(device="/job:localhost/replica:0/task:0/device:GPU:0", dtype=tf.float32, shape=(2, 2))

    def assign(self, value):
        """Every variable has this method."""


@both_ways
@pytest.mark.parametrize("of", ["model", "optimizer"])
def test_variables_on_a_gpu_are_refused_with_their_name(keras, way, of, tmp_path, monkeypatch):
    model = trainings.dense(keras)
    model.optimizer.build(model.trainable_variables)
    thing = model if of == "model" else model.optimizer
    listed = [*thing.variables, OnGpu()]
    monkeypatch.setattr(type(thing), "variables", property(lambda self: listed))
    refused(
        lambda: WAYS[way](model, tmp_path / "run"),
        deepfreeze.UnsupportedError, where=way, expected="variables in host memory", found="net/kernel on GPU:0",
        todo="CPU", folder=tmp_path,
    )  # fmt: skip


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a compiler")
@both_ways
def test_an_engine_of_another_version_is_refused(way, tmp_path, monkeypatch, model):
    source, path = tmp_path / "other.cc", tmp_path / "other.so"
    source.write_text('extern "C" { unsigned df_abi_version() { return 999; } }')
    processes.run(["g++", "-shared", "-fPIC", "-o", path, source], check=True)
    monkeypatch.setenv("DEEPFREEZE_LIBRARY", str(path))
    monkeypatch.setattr("veloc_bindings._library._loaded", None)
    expected, found, todo = "interface version", "version 999", "install the package again"
    refused(
        lambda: WAYS[way](model, tmp_path / "run"),
        deepfreeze.EngineError, where=path, expected=expected, found=found, todo=todo, folder=tmp_path, model=model,
    )  # fmt: skip


@pytest.fixture
def deep_run(tmp_path):
    """A run of a model of twelve layers, and another such model whose layers are all wider."""
    made = [stack(units) for units in (4, 5)]
    fit(made[0], tmp_path / "run")
    return tmp_path / "run", made[1]


def stack(units):
    keras3.utils.set_random_seed(1)
    layers = [keras3.layers.Dense(units) for _ in range(12)]
    model = keras3.Sequential([keras3.Input((trainings.FEATURES,)), *layers, keras3.layers.Dense(1)])
    model.compile("sgd", "mse", jit_compile=False)
    return model


def test_another_models_checkpoint_is_refused_with_ten_differences(deep_run, tmp_path):
    """Another model's checkpoint is refused, with the first ten differences."""
    run, other = deep_run
    other.optimizer.build(other.trainable_variables)
    where, expected, todo = run / "step-0000000002", "with the same optimizer", "nothing was changed"
    restored = (
        lambda: fit(other, run),
        lambda: deepfreeze.restore(other, run),
        lambda: WAYS["deepfreeze.capture"](other, run),
    )
    for action in restored:
        error = refused(
            action, deepfreeze.StructureError, where=where, expected=expected, todo=todo, folder=tmp_path, model=other
        )
        assert error.found.count(" in the model and ") == 10, error.found
        assert "float32[5, 5] in the model and float32[4, 4]" in error.found
        assert error.found.endswith(("; and 15 more", "; and 40 more"))  # Keras 2's SGD always has momenta


def test_another_optimizers_checkpoint_is_refused_with_what_is_missing(run, tmp_path):
    other = trainings.dense(keras3, keras3.optimizers.SGD(momentum=0.9))
    other.optimizer.build(other.trainable_variables)
    for action in (lambda: fit(other, run), lambda: deepfreeze.restore(other, run)):
        error = refused(action, deepfreeze.StructureError, where=run, folder=tmp_path, model=other)
        assert "optimizer" in error.found


def test_a_variable_of_an_unbuilt_optimizer_is_none_of_ours(tmp_path, run):
    """A refusal leaves the weights alone also where building the optimizer was part of it."""
    other = trainings.dense(keras3, keras3.optimizers.SGD(momentum=0.9))
    before = [np.array(v) for v in other.variables]
    with pytest.raises(deepfreeze.StructureError):
        fit(other, run)
    assert all(np.array_equal(a, b) for a, b in zip(before, other.variables, strict=True))
