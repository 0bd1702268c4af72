"""Restore into real models: whose memory the values are in, before and after training goes on."""

import itertools
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import deepfreeze
from deepfreeze.frameworks.tensorflow.variables import tf_variable
from deepfreeze.store import stores
from deepfreeze.store.run import Run
from deepfreeze.thaw import extents
from deepfreeze.thaw.extent_table import merge
from deepfreeze.thaw.rank_records import read_record
from tests.support import files, jobs, kerases, memory_store, processes
from tests.support.state import tensors

pytestmark = pytest.mark.tensorflow


def make(api, seed=1):
    """Large tensors and small ones, moments, statistics, and a dropout's seed."""
    api.utils.set_random_seed(seed)
    layers = api.layers
    model = api.Sequential(
        [api.Input((16,)), layers.Dense(1100, "relu"), layers.BatchNormalization(), layers.Dense(1000), layers.Dense(1)]
    )
    model.compile(api.optimizers.Adam(1e-2), "mse", metrics=["mae"], jit_compile=False)
    return model


def data(steps, start=0):
    rng = np.random.default_rng(start)
    x, y = rng.random((steps * 4, 16), np.float32), rng.random((steps * 4, 1), np.float32)
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(4)


def variables(model):
    """All saved variables but metrics, by path."""
    return {
        tensor.path: tf_variable(tensor.variable) for tensor in tensors(model) if not tensor.path.startswith("metrics")
    }


def values(model):
    return {path: variable.numpy().tobytes() for path, variable in variables(model).items()}


def places(model):
    """(begin, end, path) of every variable's memory, sorted."""
    found = []
    for path, variable in variables(model).items():
        view = np.asarray(memoryview(variable.read_value()))
        found.append((view.ctypes.data, view.ctypes.data + view.nbytes, path))
    return sorted(found)


@pytest.fixture
def saved(api, tmp_path):
    """A trained model and its checkpoint at step 3."""
    model = make(api)
    model.fit(data(3), verbose=0, shuffle=False, callbacks=[deepfreeze.Checkpoint(tmp_path / "run", every=3)])
    return model, tmp_path / "run"


@pytest.fixture
def parallel(monkeypatch):
    """Even this little is read by several threads, in many pieces."""
    monkeypatch.setattr(extents, "_PARALLEL", 0)
    monkeypatch.setattr(extents, "PIECE", 100_000)


@kerases.one_api_will_do
def test_values_are_bit_exact_after_restore_and_after_further_training(api, saved, parallel):
    model, run = saved
    other = make(api, seed=2)
    other.fit(data(2, start=5), verbose=0, shuffle=False)
    deepfreeze.restore(other, run)
    assert values(other) == values(model)
    for start in (1, 2):
        for each in (model, other):
            each.fit(data(4, start), verbose=0, shuffle=False)
        assert values(other) == values(model)


@kerases.one_api_will_do
def test_no_two_variables_share_memory_and_updates_are_made_in_place(api, saved):
    _, run = saved
    model = make(api, seed=2)
    deepfreeze.restore(model, run)
    before, expected = places(model), values(model)
    assert all(end <= begin for (_, end, _), (begin, _, _) in itertools.pairwise(before))
    large = [begin for begin, end, _ in before if end - begin >= 1 << 20]
    assert len(large) == 3 and all(begin % 4096 == 0 for begin in large)
    for path, variable in variables(model).items():
        variable.assign_add(tf.ones_like(variable))
        expected[path] = variable.numpy().tobytes()
        assert values(model) == expected
    assert places(model) == before


@kerases.one_api_will_do
def test_what_others_hold_of_a_variable_is_not_written_to(api, saved):
    model, run = saved
    held = {path: variable.read_value() for path, variable in variables(model).items()}
    before = {path: tensor.numpy().tobytes() for path, tensor in held.items()}
    model.fit(data(2, start=7), verbose=0, shuffle=False)
    deepfreeze.restore(model, run)
    assert {path: tensor.numpy().tobytes() for path, tensor in held.items()} == before == values(model)
    held = {path: variable.read_value() for path, variable in variables(model).items()}
    model.fit(data(2, start=8), verbose=0, shuffle=False)
    assert {path: tensor.numpy().tobytes() for path, tensor in held.items()} == before


@kerases.one_api_will_do
def test_a_flipped_bit_in_any_extent_changes_nothing_in_the_model(api, saved, parallel):
    _, run = saved
    info = deepfreeze.latest(run)
    manifest = Run.open(run).manifest(info.step)
    structure = Run.open(run).structure(manifest.structure)
    table = merge([read_record(Run.open(info.run), manifest, 0).extents])
    model = make(api, seed=2)
    model.fit(data(1), verbose=0, shuffle=False)
    before, rng = values(model), np.random.default_rng(0)
    taken = [
        (o, n)
        for o, n in zip(table["offset"].tolist(), table["nbytes"].tolist(), strict=True)
        if structure.within(o, n)
    ]
    assert len(taken) > 10
    for offset, nbytes in taken:
        at = int(rng.integers(offset, offset + nbytes))
        files.flip(info.path / files.MODEL_FILE, at)
        with pytest.raises(deepfreeze.CorruptError):
            deepfreeze.restore(model, run)
        files.flip(info.path / files.MODEL_FILE, at)
    assert values(model) == before
    deepfreeze.restore(model, run)
    assert values(model) != before


MEMORY = """
import sys, deepfreeze
import numpy as np
from tests.support.state import tensors
from tests.thaw.test_restore_keras import large

model = large()
model.predict(np.zeros((1, 1000), np.float32), verbose=0)
tensors(model)
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")  # from here on the peak counts
status = lambda key: next(int(l.split()[1]) << 10 for l in open("/proc/self/status") if l.startswith(key))
before = status("VmRSS:")
info = deepfreeze.restore(model, sys.argv[1])
print(info.nbytes, status("VmHWM:") - before, status("VmRSS:") - before)
"""


def large():
    """240 MB."""
    model = keras.Sequential([keras.Input((1000,)), keras.layers.Dense(60_000), keras.layers.Dense(1)])
    model.compile("sgd", "mse", jit_compile=False)
    return model


@pytest.mark.full
@pytest.mark.slow
def test_restore_takes_the_checkpoints_size_of_memory_and_gives_it_back(tmp_path):
    model = large()
    with deepfreeze.capture(model.optimizer, model, tmp_path / "run", every=1, local=None) as checkpoint:
        model.optimizer.iterations.assign_add(1)
        checkpoint.step()
    command = [sys.executable, "-c", MEMORY, str(tmp_path / "run")]
    done = processes.run(command, capture_output=True, text=True, env=jobs.environment())
    assert done.returncode == 0, done.stderr[-3000:]
    nbytes, peak, kept = map(int, done.stdout.split())
    assert nbytes > 240_000_000
    assert peak <= nbytes + (64 << 20)
    assert kept <= 64 << 20


@pytest.mark.parametrize(("writer", "reader"), [(keras, tf_keras), (tf_keras, keras)], ids=["3to2", "2to3"])
def test_a_model_of_the_other_keras_is_refused_by_name_with_what_to_do(writer, reader, tmp_path):
    model = make(writer)
    model.fit(data(3), verbose=0, shuffle=False, callbacks=[deepfreeze.Checkpoint(tmp_path / "run", every=3)])
    other = make(reader, seed=2)
    before = values(other)
    with pytest.raises(deepfreeze.StructureError) as caught:
        deepfreeze.restore(other, tmp_path / "run")
    both = [f"{api.__name__} {api.__version__}" for api in (writer, reader)]
    assert caught.value.found.startswith(f"one of {both[0]} and a model of {both[1]}: ")
    assert "nothing was changed" in caught.value.todo and "deepfreeze.transfer" in caught.value.todo
    assert {path: value for path, value in values(other).items() if path in before} == before


@pytest.mark.full
def test_a_run_in_a_store_without_files_is_restored_and_exported(tmp_path, monkeypatch):
    monkeypatch.setattr(stores, "STORES", {"memory": memory_store.at})
    trained = make(keras)
    trained.fit(data(4), verbose=0, callbacks=[deepfreeze.Checkpoint(tmp_path / "run", every=2)])
    memory_store.copy_of(tmp_path / "run", "memory://restored/run")
    model = make(keras, seed=2)
    assert deepfreeze.restore(model, "memory://restored/run").step == 4 and values(model) == values(trained)
    fresh = make(keras, seed=3)
    assert deepfreeze.transfer(fresh, "memory://restored/run").loaded
    deepfreeze.export("memory://restored/run", tmp_path / "out.weights.h5")
    assert (tmp_path / "out.weights.h5").read_bytes() == (
        tmp_path / "run/step-0000000004/model.weights.h5"
    ).read_bytes()
