"""A checkpoint as a file for other programs: right bytes, opened by those programs, or no file at all."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tracemalloc
import zipfile

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from safetensors import safe_open
from safetensors.numpy import load_file

import deepfreeze
from deepfreeze.cli.main import main
from deepfreeze.core.errors import CorruptError, NotFoundError, OptionError, RunError, UnsupportedError
from deepfreeze.core.keras_model import tf_variable, variable_name
from deepfreeze.core.structure import Placed
from deepfreeze.core.tensors import DTYPES, REPLICATED, TensorSpec
from deepfreeze.thaw import export as export_module
from deepfreeze.thaw import export_draft, export_safetensors
from deepfreeze.thaw.export import export
from tests.support import files, h5
from tests.support.configs import write_config

SUFFIXES = (".weights.h5", ".safetensors", ".keras")


@pytest.fixture
def run(tmp_path):
    return files.write_run(tmp_path / "run")


@pytest.fixture
def out(tmp_path):
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


@pytest.fixture(params=["unnamed", "named"])
def draft(request, monkeypatch):
    """File systems that have files without a name, and those that don't."""
    if request.param == "named":
        monkeypatch.setattr(export_draft, "_OWN_FILES", "/proc/none")


def progress_that(action):
    """Acts once half is done."""

    def progress(done, total):
        if 2 * done >= total > 0:
            action()

    return progress


# .weights.h5


@pytest.mark.parametrize(("world", "extent"), [(1, 20000), (1, 64), (3, 4096), (5, 997)])
def test_weights_h5_is_the_checkpoints_file_byte_for_byte(run, out, world, extent, draft):
    files.write_checkpoint(run, 5, files.sample(world, extent, seed=1))
    _, made = files.write_checkpoint(run, 40, files.sample(world, extent))
    told = []
    info = export(run, out / "a.weights.h5", progress=lambda done, total: told.append((done, total)))
    assert (out / "a.weights.h5").read_bytes() == made.content
    assert (info.step, info.run, told[0], told[-1]) == (40, run, (0, 20000), (20000, 20000))
    assert export(run, str(out / "b.weights.h5"), 5).step == 5
    assert (out / "b.weights.h5").read_bytes() == files.sample(world, extent, seed=1).content
    assert sorted(os.listdir(out)) == ["a.weights.h5", "b.weights.h5"]


def test_a_checkpoint_that_retention_takes_away_meanwhile_gives_way_to_the_newer_one(run, out, monkeypatch):
    old, _ = files.write_checkpoint(run, 40, files.sample(seed=1))
    describe = export_module.describe

    def deleting(opened, step):
        info = describe(opened, step)
        if old.exists():
            files.write_checkpoint(run, 50, files.sample(seed=2))
            shutil.rmtree(old)
        return info

    monkeypatch.setattr(export_module, "describe", deleting)
    assert export(run, out / "a.weights.h5").step == 50
    assert (out / "a.weights.h5").read_bytes() == files.sample(seed=2).content


# .safetensors


def test_safetensors_opens_in_its_library_with_the_weights_and_where_they_are_from(run, out):
    _, made = files.write_checkpoint(run, 40)
    export(run, out / "a.safetensors")
    found = load_file(out / "a.safetensors")
    assert set(found) == set(made.values) - {"seed"}
    for name, value in found.items():
        assert (value.dtype, value.shape) == (made.values[name].dtype, made.values[name].shape)
        assert value.tobytes() == made.values[name].tobytes()
    with safe_open(out / "a.safetensors", "np") as opened:
        about = opened.metadata()
    assert about == {
        "run_id": files.RUN_ID, "step": "40", "attempt": files.ATTEMPT, "created": files.CREATED, "state": "full",
        "structure": made.hash, "api": "keras", "keras": "3.15.1", "tensorflow": "2.21.0",
    }  # fmt: skip


def test_a_seeded_runs_parent_is_in_the_metadata(run, out):
    parent = {"path": "/runs/base", "run_id": "ab" * 16, "step": 7, "attempt": "cd" * 16}
    (run / "run.json").write_text(
        json.dumps({"format": 1, "run_id": files.RUN_ID, "created": files.CREATED, "parent": parent})
    )
    files.write_checkpoint(run, 40)
    export(run, out / "a.safetensors")
    with safe_open(out / "a.safetensors", "np") as opened:
        about = opened.metadata()
    assert (about["parent"], about["parent_run_id"]) == ("/runs/base@7", "ab" * 16)


def test_safetensors_with_optimizer_has_all_tensors_and_rank_0s_seeds(run, out):
    _, made = files.write_checkpoint(run, 40)
    export(run, out / "a.safetensors", optimizer=True)
    found = load_file(out / "a.safetensors")
    assert set(found) == set(made.values) and np.array_equal(found["seed"], made.seeds[0])


def test_safetensors_lie_one_after_the_other_each_where_its_elements_are_aligned(run, out):
    files.write_checkpoint(run, 40)
    export(run, out / "a.safetensors", optimizer=True)
    data = (out / "a.safetensors").read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__")
    end = 0
    for entry in header.values():
        begin, stop = entry["data_offsets"]
        assert begin == end and (8 + size + begin) % {"F32": 4, "F64": 8, "I64": 8}[entry["dtype"]] == 0
        end = stop
    assert len(data) == 8 + size + end


def test_one_tensor_is_in_memory_at_a_time(tmp_path):
    layers = [keras.Input((700,)), *(keras.layers.Dense(700) for _ in range(8))]
    model = keras.Sequential(layers)
    model.compile("adam", "mse", jit_compile=False)
    x = np.zeros((3, 700), np.float32)
    model.fit(
        x, x, batch_size=1, verbose=0, callbacks=[deepfreeze.Checkpoint(tmp_path / "run", every=3, save_config=True)]
    )
    for suffix in SUFFIXES:
        tracemalloc.start()
        export(tmp_path / "run", tmp_path / f"a{suffix}")
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        tensor, whole = 700 * 700 * 4, (tmp_path / f"a{suffix}").stat().st_size
        assert peak < tensor + (4 << 20) < whole // 2, suffix


def test_every_dtype_but_complex128_has_its_name_in_safetensors():
    assert set(export_safetensors.DTYPES) == set(DTYPES) - {"complex128"}
    placed = Placed(TensorSpec("z", "complex128", (2,), REPLICATED), "layers/z", 64)
    with pytest.raises(UnsupportedError, match="complex128"):
        export_safetensors.make_header([placed], {})


# Nothing but whole files


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("overwrite", [False, True])
def test_damaged_bytes_are_found_and_named_and_leave_what_was_there(run, out, suffix, overwrite, draft):
    folder, _ = files.write_checkpoint(run, 40, files.sample(extent=1000))
    write_config(run)
    files.flip(folder / files.MODEL_FILE, 4200)
    target = out / f"a{suffix}"
    if overwrite:
        target.write_bytes(b"before")
    with pytest.raises(CorruptError) as caught:
        export(run, target, overwrite=overwrite)
    assert caught.value.where == str(folder / files.MODEL_FILE)
    assert "bytes 4000 to 5000" in caught.value.expected and "dense/kernel" in caught.value.expected
    assert [path.read_bytes() for path in out.iterdir()] == ([b"before"] if overwrite else [])


def test_any_damaged_byte_of_the_model_file_stops_weights_h5(run, out):
    folder, made = files.write_checkpoint(run, 40)
    for at in [*range(0, 20000, 1013), 19999]:  # tensors, and HDF5's own bytes between them
        files.flip(folder / files.MODEL_FILE, at)
        with pytest.raises(CorruptError):
            export(run, out / "a.weights.h5")
        files.flip(folder / files.MODEL_FILE, at)
    assert os.listdir(out) == []
    for damage in (lambda p: os.truncate(p, 19999), lambda p: p.write_bytes(made.content + b"x"), os.unlink):
        damage(folder / files.MODEL_FILE)
        with pytest.raises(CorruptError):
            export(run, out / "a.weights.h5")
    assert os.listdir(out) == []


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_an_export_that_is_interrupted_leaves_nothing(run, out, suffix, draft):
    files.write_checkpoint(run, 40)
    write_config(run)

    def interrupt():
        raise KeyboardInterrupt

    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(KeyboardInterrupt):
        export(run, out / f"a{suffix}", progress=progress_that(interrupt))
    assert os.listdir(out) == [] and len(os.listdir("/proc/self/fd")) == before


@pytest.mark.crash
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_an_export_that_is_killed_leaves_nothing(run, out, suffix):
    try:
        os.close(os.open(out, os.O_RDWR | os.O_TMPFILE))
    except OSError:
        pytest.skip("this file system has no files without a name: a kill leaves .NAME.XXXXXXXX.tmp here")
    files.write_checkpoint(run, 40)
    write_config(run)
    code = (
        "import os, sys; from deepfreeze.thaw.export import export\n"
        "export(sys.argv[1], sys.argv[2], progress=lambda done, total: 2 * done >= total > 0 and os.kill(os.getpid(), 9))"
    )
    killed = subprocess.run([sys.executable, "-c", code, str(run), str(out / f"a{suffix}")])
    assert killed.returncode == -signal.SIGKILL and os.listdir(out) == []


def test_what_is_there_is_replaced_only_if_asked(run, out, draft):
    _, made = files.write_checkpoint(run, 40)
    target = out / "a.weights.h5"
    target.write_bytes(b"before")
    with pytest.raises(OptionError, match="overwrite=True"):
        export(run, target)
    assert target.read_bytes() == b"before"
    export(run, target, overwrite=True)
    assert target.read_bytes() == made.content and os.listdir(out) == ["a.weights.h5"]


def test_what_comes_to_be_there_meanwhile_is_not_replaced(run, out, draft):
    files.write_checkpoint(run, 40)
    target = out / "a.weights.h5"
    with pytest.raises(OptionError, match="nothing there"):
        export(run, target, progress=progress_that(lambda: target.write_bytes(b"another's")))
    assert target.read_bytes() == b"another's" and os.listdir(out) == ["a.weights.h5"]


def test_a_link_is_replaced_and_what_it_leads_to_is_not(run, out, draft):
    _, made = files.write_checkpoint(run, 40)
    (out / "theirs").write_bytes(b"before")
    (out / "a.weights.h5").symlink_to(out / "theirs")
    export(run, out / "a.weights.h5", overwrite=True)
    assert (out / "theirs").read_bytes() == b"before" and (out / "a.weights.h5").read_bytes() == made.content


def test_an_exported_file_is_never_writable_for_everybody(run, out, draft):
    files.write_checkpoint(run, 40)
    before = os.umask(0)
    try:
        export(run, out / "a.weights.h5")
    finally:
        os.umask(before)
    assert (out / "a.weights.h5").stat().st_mode & 0o777 == 0o664


@pytest.mark.parametrize("name", ["a.h5", "a", ".keras", "a.npz", "a.weights.h5.tmp"])
def test_another_suffix_is_refused_naming_the_three(run, out, name):
    files.write_checkpoint(run, 40)
    with pytest.raises(OptionError, match=r"\.weights\.h5, \.safetensors, \.keras"):
        export(run, out / name)
    assert os.listdir(out) == []


def test_what_can_not_be_is_refused_and_said(run, out):
    folder, _ = files.write_checkpoint(run, 40)
    for target, options, error, word in [
        (out / "none" / "a.keras", {}, RunError, "No such file"),
        (out / "a.keras", {"optimizer": True}, OptionError, "safetensors"),
        (folder / "a.weights.h5", {}, OptionError, "outside of the run"),
        (folder / files.MODEL_FILE, {"overwrite": True}, OptionError, "outside of the run"),
        (out / "a.weights.h5", {"step": 41}, NotFoundError, "steps 40"),
    ]:
        with pytest.raises(error, match=word):
            export(run, target, **options)
    (out / "b.keras").mkdir()
    with pytest.raises(OptionError, match="a directory"):
        export(run, out / "b.keras", overwrite=True)
    with pytest.raises(NotFoundError):
        export(out, out / "a.weights.h5")
    assert os.listdir(out) == ["b.keras"]
    export(run, run / "final.weights.h5")  # beside the run's own files it is in nobody's way


def test_a_full_disk_leaves_nothing(run, out):
    files.write_checkpoint(run, 40)
    code = (
        "import resource, signal, sys, deepfreeze; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (10000, 10000))\n"
        "try: deepfreeze.export(sys.argv[1], sys.argv[2])\n"
        "except deepfreeze.RunError as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(run), str(out / "a.weights.h5")], capture_output=True, text=True
    )
    assert "File too large" in done.stdout and os.listdir(out) == [], done.stderr


# Real models


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


@pytest.fixture(params=[keras, tf_keras], ids=["keras", "tf_keras"])
def api(request):
    return request.param


X = np.linspace(-1, 1, 80, dtype=np.float32).reshape(10, 8)


def test_stock_keras_loads_each_format_with_the_very_values(api, tmp_path):
    model = fit(make(api), tmp_path / "run", save_config=True)
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
    model = fit(make(api), tmp_path / "run", save_config=True)
    export(tmp_path / "run", tmp_path / "a.keras")
    model.save(tmp_path / "stock.keras")
    with zipfile.ZipFile(tmp_path / "a.keras") as ours, zipfile.ZipFile(tmp_path / "stock.keras") as stock:
        assert sorted(ours.namelist()) == sorted(stock.namelist())
        assert json.loads(ours.read("config.json")) == json.loads(stock.read("config.json"))
        assert json.loads(ours.read("metadata.json")).keys() == json.loads(stock.read("metadata.json")).keys()
        assert ours.testzip() is None
    export(tmp_path / "run", tmp_path / "b.keras")
    assert (tmp_path / "a.keras").read_bytes() == (tmp_path / "b.keras").read_bytes()


def test_a_checkpoint_of_weights_alone_becomes_a_model_with_a_fresh_optimizer(api, tmp_path):
    model = fit(make(api), tmp_path / "run", save_config=True, state="weights")
    export(tmp_path / "run", tmp_path / "a.keras")
    loaded = api.models.load_model(tmp_path / "a.keras")
    assert np.array_equal(loaded.predict(X, verbose=0), model.predict(X, verbose=0))


def test_each_checkpoint_keeps_its_own_attempts_configuration(tmp_path):
    """Models of one structure, with other activations, one after the other in one run."""
    fit(make(keras, "relu"), tmp_path / "run", 3, save_config=True, keep=5)
    fit(make(keras, "tanh"), tmp_path / "run", 3, save_config=True, keep=5)
    fit(make(keras, "sigmoid"), tmp_path / "run", 3, keep=5)
    assert [info.step for info in deepfreeze.checkpoints(tmp_path / "run")] == [3, 6, 9]
    for step, activation in ((3, "relu"), (6, "tanh")):
        export(tmp_path / "run", tmp_path / f"{step}.keras", step)
        assert keras.models.load_model(tmp_path / f"{step}.keras").layers[0].activation.__name__ == activation
    with pytest.raises(NotFoundError, match="without save_config"):
        export(tmp_path / "run", tmp_path / "9.keras")
    assert not (tmp_path / "9.keras").exists()


def test_storing_the_configuration_leaves_the_model_as_it_was(api, tmp_path):
    with_config = fit(make(api), tmp_path / "a", save_config=True)
    without = fit(make(api), tmp_path / "b")
    left, right = (np.concatenate([np.ravel(v) for v in m.get_weights()]) for m in (with_config, without))
    assert left.tobytes() == right.tobytes()
    assert not any("save_own_variables" in vars(layer) for layer in [with_config, *with_config.layers])
    assert not (tmp_path / "b" / "configs").exists()


def test_a_model_that_keras_can_not_build_from_json_is_refused_when_training_begins(tmp_path):
    class Own(keras.Model):
        def __init__(self, thing):
            super().__init__()
            self.dense, self.thing = keras.layers.Dense(1), thing

        def call(self, x):
            return self.dense(x)

        def get_config(self):
            return {"thing": float("nan")}

    model = Own(object())
    model(X)
    model.compile("sgd", "mse", jit_compile=False)
    with pytest.raises(UnsupportedError, match="get_config"):
        fit(model, tmp_path / "run", save_config=True)
    assert deepfreeze.checkpoints(tmp_path / "run") == []


def test_a_model_with_files_beside_its_configuration_is_refused(tmp_path):
    words = keras.layers.TextVectorization(max_tokens=5, output_sequence_length=4)
    words.adapt(["a b", "b c"])
    inputs = keras.Input((8,))
    model = keras.Model(inputs, keras.layers.Dense(1)(inputs))
    model.words = words  # tracked, and saved with its vocabulary
    model.compile("sgd", "mse", jit_compile=False)
    with pytest.raises(UnsupportedError, match="assets"):
        fit(model, tmp_path / "run", save_config=True)


def test_several_optimizers_are_none_of_the_weights(tmp_path):
    model = make(keras)
    model.second = keras.optimizers.SGD(0.1, momentum=0.9)
    model.second.build(model.trainable_variables)
    fit(model, tmp_path / "run")
    export(tmp_path / "run", tmp_path / "a.safetensors")
    assert len(load_file(tmp_path / "a.safetensors")) == len(model.weights)


def test_exporting_needs_neither_tensorflow_nor_the_engine(run, out):
    files.write_checkpoint(run, 40)
    write_config(run)
    code = (
        "import sys, deepfreeze\n"
        "for suffix in ('.weights.h5', '.safetensors', '.keras'): deepfreeze.export(sys.argv[1], sys.argv[2] + suffix)\n"
        "assert not {'tensorflow', 'keras', 'tf_keras', 'safetensors', 'veloc_bindings'} & set(sys.modules), sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code, str(run), str(out / "a")], capture_output=True, text=True)
    assert done.returncode == 0 and len(os.listdir(out)) == 3, done.stderr


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
    "a layer's own": (keras, doubling, None, "plain-h5"),
    "a layer's own, tf_keras": (tf_keras, doubling, None, "plain-h5"),
    "LoRA": (keras, lora, None, "plain-h5"),
    "LoRA, int8": (keras, lora, "int8", "plain-h5"),
    "int8": (keras, plain_dense, "int8", "keras-h5"),
}


@pytest.mark.parametrize(("api", "first", "quantised", "layout"), TRANSFORMING.values(), ids=TRANSFORMING)
def test_what_keras_can_not_load_is_told_apart_and_goes_through_everything_else(
    api, first, quantised, layout, tmp_path, capsys
):
    model = fit(transforming(api, first, 1, quantised), tmp_path / "run", save_config=True)
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


def test_the_base_of_a_model_with_low_ranks_is_transferred_into_one_without(tmp_path):
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
