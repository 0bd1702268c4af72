"""Parts of a checkpoint into real models, by name: what is copied, what is left alone, and what is refused."""

import json
import os
import re
import shutil
import types

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from safetensors.numpy import load_file

import deepfreeze
from deepfreeze.frameworks.tensorflow.variables import tf_variable
from deepfreeze.state.keras_objects import variable_name
from tests.support import files, kerases

pytestmark = pytest.mark.tensorflow


def network(api, classes=3, head="head", width=8, dtype=None, seed=1):
    """A convolutional base with statistics, layers named by hand, and a classifier."""
    api.utils.set_random_seed(seed)
    layers = api.layers
    inputs = api.Input((12, 4), dtype=dtype)
    x = layers.Conv1D(width, 3, name="conv", dtype=dtype)(inputs)
    x = layers.BatchNormalization(name="norm", dtype=dtype)(x)
    x = layers.Dropout(0.2, name="drop")(layers.Flatten(name="flat")(x))
    x = layers.Dense(6, activation="relu", name="neck", dtype=dtype)(x)
    return api.Model(inputs, layers.Dense(classes, name=head, dtype=dtype)(x))


def stack(api, *widths, inputs=4):
    """Layers that Keras names."""
    return api.Sequential([api.Input((inputs,)), *(api.layers.Dense(width) for width in widths)])


def trained(api, model, run, steps=2, **options):
    """Saves ``model`` after ``steps`` in ``run``."""
    model.compile(api.optimizers.Adam(1e-2), "mse", metrics=["mae"], jit_compile=False)
    rng = np.random.default_rng(0)
    x = rng.random((steps * 4, *model.input_shape[1:]), np.float32)
    y = rng.random((steps * 4, model.output_shape[-1]), np.float32)
    batches = tf.data.Dataset.from_tensor_slices((x, y)).batch(4)
    callback = deepfreeze.Checkpoint(run, every=steps, local=None, **options)
    model.fit(batches, verbose=0, shuffle=False, callbacks=[callback])
    return model


def values(model):
    """All weights, by name."""
    return {variable_name(v): tf_variable(v).numpy() for v in model.weights}


def layers_of(model):
    """All weights, by name without the model's own."""
    return {"/".join(name.split("/")[-2:]): value for name, value in values(model).items()}


def same(model, before):
    now = values(model)
    return now.keys() == before.keys() and all(np.array_equal(now[name], value) for name, value in before.items())


@pytest.fixture(scope="module")
def once(api, tmp_path_factory):
    """A trained model, and the run that has its checkpoint."""
    run = tmp_path_factory.mktemp("once") / "run"
    return trained(api, network(api), run), run


@pytest.fixture
def saved(once, tmp_path):
    """That model, to be left as it is, and a copy of that run."""
    model, run = once
    return model, shutil.copytree(run, tmp_path / "run")


@pytest.fixture
def counted(monkeypatch):
    """How many bytes each read of a model file has given."""
    found = []
    preadv = os.preadv
    monkeypatch.setattr(os, "preadv", lambda fd, to, at: found.append(n := preadv(fd, to, at)) or n)
    return found


def test_a_base_goes_below_a_new_classifier_with_its_statistics(api, saved):
    old, run = saved
    model = network(api, classes=5, head="fresh", seed=2)
    theirs, before = values(old), values(model)
    report = deepfreeze.transfer(model, run)
    now = values(model)
    base = [name for name in theirs if not name.startswith("head/")]
    assert len(base) == 8 and {"norm/moving_mean", "norm/moving_variance"} <= set(base)
    for name in base:
        assert np.array_equal(now[name], theirs[name])
    assert np.array_equal(now["fresh/kernel"], before["fresh/kernel"])
    assert sorted(one.name for one in report.loaded) == sorted(base)
    assert report.nbytes == sum(theirs[name].nbytes for name in base)
    assert {(one.name, one.reason) for one in report.skipped} == {
        ("head/kernel", "not in the model"),
        ("head/bias", "not in the model"),
    }
    assert sorted(report.missing) == ["fresh/bias", "fresh/kernel"] and report.untouched == () == report.mismatched
    assert report.info.step == 2 and not report.dry_run


@kerases.one_api_will_do
def test_optimizer_metrics_and_seeds_stay_the_models_own(api, saved, tmp_path):
    _, run = saved
    model = trained(api, network(api, seed=2), tmp_path / "other", steps=3)
    weights = {id(v) for v in model.weights}
    own = model.optimizer.variables
    others = [*(own() if callable(own) else own), *(v for v in model.variables if id(v) not in weights)]
    before = [tf_variable(v).numpy().tobytes() for v in others]
    assert len(others) > 10
    report = deepfreeze.transfer(model, run)
    assert len(report.loaded) == 10
    assert [tf_variable(v).numpy().tobytes() for v in others] == before
    names = [one.name for one in (*report.loaded, *report.skipped)]
    assert len(names) == 10 and not any("adam" in name or "seed" in name for name in names)


@kerases.one_api_will_do
def test_patterns_choose_layers_and_weights(api, saved):
    old, run = saved
    cases = [
        ({"include": "conv"}, {"conv/kernel", "conv/bias"}),
        ({"include": ["conv/", "*moving*"]}, {"conv/kernel", "conv/bias", "norm/moving_mean", "norm/moving_variance"}),
        ({"include": "n*", "exclude": ["norm", "*/bias"]}, {"neck/kernel"}),
        ({"exclude": ("norm", "conv", "neck", "head/kernel")}, {"head/bias"}),
        ({"include": "?onv/kern[xy]l"}, None),
    ]
    for arguments, wanted in cases:
        model = network(api, seed=2)
        before = values(model)
        if wanted is None:
            with pytest.raises(deepfreeze.OptionError):
                deepfreeze.transfer(model, run, **arguments)
            assert same(model, before)
            continue
        report = deepfreeze.transfer(model, run, **arguments)
        assert {one.name for one in report.loaded} == wanted
        expected = {name: values(old)[name] if name in wanted else before[name] for name in before}
        assert same(model, expected)
        assert set(report.untouched) == before.keys() - wanted and report.missing == ()


@kerases.one_api_will_do
def test_a_pattern_that_fits_nothing_is_refused_with_those_like_it(api, saved):
    """A pattern or a name that fits no weight is refused, with the names that are like it."""
    _, run = saved
    model = network(api, seed=2)
    before = values(model)
    for arguments, near in [
        ({"include": "cnov*"}, "conv"),
        ({"include": ["conv", "nrom/gamma"]}, "norm/gamma"),
        ({"exclude": "heat"}, "head"),
        ({"rename": {"nack": "neck"}}, "neck"),
    ]:
        for dry_run in (False, True):
            with pytest.raises(deepfreeze.OptionError) as caught:
                deepfreeze.transfer(model, run, dry_run=dry_run, **arguments)
            assert near in caught.value.found and caught.value.where.startswith(next(iter(arguments)))
    assert same(model, before)


@pytest.mark.parametrize(
    "arguments",
    [
        {"include": 5},
        {"include": ""},
        {"include": [None]},
        {"rename": "conv"},
        {"rename": {"conv": 1}},
        {"rename": lambda name: None},
        {"rename": {"conv/kernel": ""}},
        {"rename": lambda name: "one"},
        {"rename": {"conv": "neck"}},
        {"on_mismatch": "ignore"},
    ],
    ids=lambda given: next(iter(given)),
)
@kerases.one_api_will_do
def test_arguments_without_a_meaning_are_refused(api, saved, arguments):
    model, run = saved
    before = values(model)
    with pytest.raises(deepfreeze.OptionError) as caught:
        deepfreeze.transfer(model, run, **arguments)
    assert caught.value.todo and same(model, before)


@kerases.one_api_will_do
def test_a_weight_of_another_shape_is_an_error_or_skipped(api, saved):
    """A weight of another shape is an error, or is skipped; never is a transfer half done."""
    _, run = saved
    model = network(api, classes=5, seed=2)
    before = values(model)
    with pytest.raises(deepfreeze.StructureError) as caught:
        deepfreeze.transfer(model, run)
    assert "head/kernel is float32[6, 3] in the checkpoint and float32[6, 5] in the model" in caught.value.found
    assert same(model, before)
    report = deepfreeze.transfer(model, run, on_mismatch="skip")
    assert {one.name for one in report.mismatched} == {"head/kernel", "head/bias"} and len(report.loaded) == 8
    assert np.array_equal(values(model)["head/kernel"], before["head/kernel"])
    assert deepfreeze.transfer(model, run, exclude="head").mismatched == ()


def test_the_first_ten_of_many_mismatches_are_named(tmp_path):
    trained(keras, stack(keras, *[3] * 12), tmp_path / "run")
    with pytest.raises(deepfreeze.StructureError) as caught:
        deepfreeze.transfer(stack(keras, *[5] * 12), tmp_path / "run")
    assert caught.value.found.count(" in the checkpoint and ") == 10 and caught.value.found.endswith("and 14 more")


@kerases.one_api_will_do
def test_renaming_takes_whole_components_by_the_longest_entry(api, saved):
    old, run = saved
    model = network(api, head="digits", seed=2)
    renamed = {"head": "digits", "head/bias": "norm/beta", "norm/beta": "norm/gamma"}
    skip = {"on_mismatch": "skip", "dry_run": True}
    report = deepfreeze.transfer(model, run, include=["head", "conv"], rename=renamed, **skip)
    pairs = {one.name: one.target for one in (*report.loaded, *report.mismatched)}
    assert pairs["head/kernel"] == "digits/kernel" and pairs["head/bias"] == "norm/beta"
    assert {one.name for one in report.mismatched} == {"head/bias"} and report.missing == ("digits/bias",)
    deepfreeze.transfer(model, run, rename={"head": "digits"})
    assert np.array_equal(values(model)["digits/kernel"], values(old)["head/kernel"])
    model = network(api, head="digits", seed=3)
    deepfreeze.transfer(model, run, rename=lambda name: name.replace("head", "digits"))
    assert np.array_equal(values(model)["digits/kernel"], values(old)["head/kernel"])


def test_a_prefix_can_be_put_before_all_names_and_taken_away(tmp_path):
    class Wrapped(keras.Model):
        def __init__(self):
            super().__init__(name="outer")
            self.inner = keras.layers.Dense(3, name="dense_of_mine")

        def call(self, x):
            return self.inner(x)

    flat = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, name="dense_of_mine")])
    trained(keras, flat, tmp_path / "flat")
    deep = Wrapped()
    deep(np.zeros((1, 4), np.float32))
    assert set(values(deep)) == {"outer/dense_of_mine/kernel", "outer/dense_of_mine/bias"}
    for rename in (None, {"": "outer"}, {"dense_of_mine": "outer/dense_of_mine"}, str):
        deep.inner.kernel.assign(np.zeros((4, 3)))
        report = deepfreeze.transfer(deep, tmp_path / "flat", rename=rename)
        assert [one.name for one in report.loaded] == [v.path for v in flat.weights]
        assert [one.target for one in report.loaded] == [v.path for v in deep.weights]
        assert np.array_equal(deep.inner.kernel.numpy(), flat.layers[0].kernel.numpy())
    outside = functional(keras, "front", "dense_of_mine")
    deepfreeze.transfer(outside, tmp_path / "flat")
    with pytest.raises(deepfreeze.StructureError, match="rename="):
        deepfreeze.transfer(functional(keras, "front", "back"), tmp_path / "flat")
    nested = functional(keras, "front", "back")
    deepfreeze.transfer(nested, tmp_path / "flat", rename={"dense_of_mine": "back"})
    for model, name in ((outside, "dense_of_mine"), (nested, "back")):
        assert np.array_equal(model.get_layer(name).kernel.numpy(), flat.layers[0].kernel.numpy())


def functional(api, *names):
    """Dense layers of 3, one behind the other; Keras puts nothing before their names."""
    x = inputs = api.Input((4,))
    for name in names:
        x = api.layers.Dense(3 if name != "front" else 4, name=name)(x)
    return api.Model(inputs, x)


@pytest.mark.parametrize("nest", [False, True], ids=["whole", "nested"])
def test_a_sequential_base_goes_into_another_model_or_below_one(api, nest, tmp_path):
    """A sequential base goes into a model of another name or below another."""

    def base(name):
        layers = [api.layers.Dense(5, name="one"), api.layers.Dense(4, name="two")]
        return api.Sequential([api.Input((4,)), *layers], name=name)

    old = trained(api, base("first"), tmp_path / "run")
    new = base("first" if nest else "second")
    inputs = api.Input((4,))
    model = api.Model(inputs, api.layers.Dense(2, name="top")(new(inputs))) if nest else new
    report = deepfreeze.transfer(model, tmp_path / "run", include=["one", "*two/kernel"])
    assert len(report.loaded) == 3
    for mine, theirs in zip(new.weights[:3], old.weights[:3], strict=True):
        assert np.array_equal(tf_variable(mine).numpy(), tf_variable(theirs).numpy())


def test_floats_are_converted_and_reported_and_values_too_large_are_not(tmp_path):
    run = tmp_path / "run"
    old = trained(keras, network(keras), run)
    model = network(keras, dtype="float64", seed=2)
    report = deepfreeze.transfer(model, run)
    assert all(one.cast for one in report.loaded) and report.loaded[0].target_dtype == "float64"
    assert np.array_equal(values(model)["conv/kernel"], values(old)["conv/kernel"].astype("f8"))
    assert "float32 to float64" in str(report)

    old.get_layer("conv").kernel.assign(np.full((3, 4, 8), 1e10, "f4"))
    other = tmp_path / "other"
    trained(keras, old, other)
    half = network(keras, dtype="float16", seed=2)
    before = values(half)
    with pytest.raises(deepfreeze.StructureError, match="conv/kernel too large for float16"):
        deepfreeze.transfer(half, other)
    assert same(half, before)
    report = deepfreeze.transfer(half, other, on_mismatch="skip")
    large = {"conv/kernel", "norm/moving_mean", "norm/moving_variance"}
    assert {one.name for one in report.mismatched} == large and len(report.loaded) == 7
    assert np.array_equal(values(half)["conv/kernel"], before["conv/kernel"])


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
def test_every_floating_point_type_takes_what_it_can_hold(dtype, tmp_path):
    old = trained(keras, network(keras), tmp_path / "run")
    model = network(keras, dtype=dtype, seed=2)
    deepfreeze.transfer(model, tmp_path / "run")
    for mine, theirs in zip(model.weights, old.weights, strict=True):
        wanted = tf.cast(tf_variable(theirs), mine.dtype)
        assert np.array_equal(tf.cast(tf_variable(mine), "float64").numpy(), tf.cast(wanted, "float64").numpy())


def test_another_kind_of_number_does_not_fit(tmp_path):
    class Counts(keras.layers.Layer):
        def __init__(self, dtype, **more):
            super().__init__(**more)
            self.counts = self.add_weight(name="counts", shape=(2,), dtype=dtype, trainable=False, initializer="zeros")

        def call(self, x):
            return x

    def model(dtype):
        return keras.Sequential([keras.Input((4,)), Counts(dtype, name="c"), keras.layers.Dense(1, name="d")])

    trained(keras, model("int32"), tmp_path / "run")
    with pytest.raises(deepfreeze.StructureError, match=r"c/counts is int32\[2\] in the checkpoint and int64\[2\]"):
        deepfreeze.transfer(model("int64"), tmp_path / "run")


@kerases.one_api_will_do
def test_a_dry_run_reads_no_values_and_changes_nothing(api, saved, counted):
    _, run = saved
    model = network(api, classes=5, seed=2)
    before = values(model)
    dry = deepfreeze.transfer(model, run, dry_run=True, on_mismatch="skip")
    assert counted == [] and same(model, before)
    assert dry.dry_run and len(dry.loaded) == 8 and len(dry.mismatched) == 2
    real = deepfreeze.transfer(model, run, on_mismatch="skip")
    assert (dry.loaded, dry.mismatched, dry.skipped, dry.missing) == (
        real.loaded,
        real.mismatched,
        real.skipped,
        real.missing,
    )
    assert sum(counted) >= real.nbytes


@kerases.one_api_will_do
def test_a_dry_run_ends_as_the_call_would_behind_its_report(api, saved, counted, capsys):
    _, run = saved
    cases = [
        (network(api, classes=5, seed=2), {}, "8 loaded, 2 mismatched"),
        (stack(api, 3), {}, "skipped"),
        (network(api, classes=5, seed=2), {"include": "head", "on_mismatch": "skip"}, "2 mismatched"),
    ]
    for model, arguments, said in cases:
        before = values(model)
        errors = []
        for dry_run in (True, False):
            capsys.readouterr()
            with pytest.raises(deepfreeze.StructureError) as caught:
                deepfreeze.transfer(model, run, dry_run=dry_run, **arguments)
            errors.append(str(caught.value))
            # What becomes of each weight is what a dry run is for.
            assert (said in capsys.readouterr().err) == dry_run
        assert errors[0] == errors[1] and same(model, before)
        with pytest.raises(deepfreeze.StructureError):
            deepfreeze.transfer(model, run, dry_run=True, verbose=0, **arguments)
        assert capsys.readouterr().err == ""
    assert counted == []


def test_one_layer_of_a_large_checkpoint_reads_little_more_than_that_layer(tmp_path, counted):
    run = tmp_path / "run"
    old = trained(keras, stack(keras, 2000, 2000, 50, 1), run, steps=1)
    counted.clear()
    model = stack(keras, 2000, 2000, 50, 1)
    layer = old.layers[2].name
    report = deepfreeze.transfer(model, run, include=layer)
    assert [one.name.split("/")[-2:] for one in report.loaded] == [[layer, "bias"], [layer, "kernel"]]
    assert report.nbytes == 4 * (2000 * 50 + 50) and report.info.nbytes > 40_000_000
    assert report.nbytes <= sum(counted) <= report.nbytes + 100_000
    assert np.array_equal(model.layers[2].kernel.numpy(), old.layers[2].kernel.numpy())


@kerases.one_api_will_do
def test_damage_to_any_chosen_weight_changes_nothing(api, saved):
    _, run = saved
    info = deepfreeze.latest(run)
    with deepfreeze.read(run) as tensors:
        places = {name: placed.offset for name, placed in tensors.structure.by_name.items()}
    model = network(api, seed=2)
    before = values(model)
    for name in ("conv/kernel", "head/bias"):
        files.flip(info.path / files.MODEL_FILE, places[name])
        with pytest.raises(deepfreeze.CorruptError):
            deepfreeze.transfer(model, run)
        assert same(model, before)
        files.flip(info.path / files.MODEL_FILE, places[name])
    assert len(deepfreeze.transfer(model, run).loaded) == 10


@kerases.one_api_will_do
def test_what_is_not_there_is_an_error(api, saved, tmp_path):
    _, run = saved
    model = network(api)
    with pytest.raises(deepfreeze.NotFoundError):
        deepfreeze.transfer(model, run, step=41)
    with pytest.raises(deepfreeze.NotFoundError):
        deepfreeze.transfer(model, tmp_path / "none")
    other = stack(api, 3)
    with pytest.raises(deepfreeze.StructureError) as caught:
        deepfreeze.transfer(other, run)
    assert "norm/" in caught.value.found and "dense" in caught.value.found and "rename=" in caught.value.todo
    with pytest.raises(deepfreeze.StructureError, match="Build it first"):
        deepfreeze.transfer(api.Sequential([api.layers.Dense(3)]), run)


@kerases.one_api_will_do
def test_a_model_that_was_not_compiled_and_a_part_of_one_take_weights_too(api, saved):
    old, run = saved
    part = network(api, seed=2)
    base = api.Model(part.input, part.get_layer("neck").output)
    report = deepfreeze.transfer(base, run)
    assert len(report.loaded) == 8 and report.missing == ()
    assert np.array_equal(values(part)["conv/kernel"], values(old)["conv/kernel"])


def test_weights_saved_without_their_optimizer_are_taken_too(tmp_path):
    old = trained(keras, network(keras), tmp_path / "run", state="weights")
    model = network(keras, seed=2)
    assert len(deepfreeze.transfer(model, tmp_path / "run").loaded) == 10
    assert same(model, values(old))


@pytest.mark.parametrize(("one", "other"), [(keras, tf_keras), (tf_keras, keras)], ids=["to-tf_keras", "to-keras"])
def test_either_keras_takes_the_others_weights(one, other, tmp_path):
    old = trained(one, network(one), tmp_path / "run")
    model = network(other, seed=2)
    assert len(deepfreeze.transfer(model, tmp_path / "run").loaded) == 10
    assert same(model, values(old))


def deep(api):
    """Every way of naming that Keras has: nested, in parts, layers in layers."""
    layers = api.layers
    inputs = api.Input((6, 4))
    x = layers.Bidirectional(layers.LSTM(3, return_sequences=True))(inputs)
    x = x + layers.MultiHeadAttention(2, 3)(x, x)
    x = api.Sequential([api.Input((6, 6)), layers.Dense(5), layers.BatchNormalization(), layers.Dense(5)])(x)
    x = layers.Dense(5)(layers.LSTM(5)(x))
    return api.Model(inputs, layers.Dense(2)(layers.Dense(5)(x)))


@kerases.one_api_will_do
def test_all_of_a_checkpoint_transferred_is_what_restore_gives(api, tmp_path):
    """Transferring all of a checkpoint into the same program's next model gives what restore gives."""
    old = trained(api, deep(api), tmp_path / "run")
    model = deep(api)
    assert values(model).keys() != values(old).keys()
    report = deepfreeze.transfer(model, tmp_path / "run")
    assert (report.skipped, report.missing, report.mismatched) == ((), (), ())
    restored = deep(api)
    deepfreeze.restore(restored, tmp_path / "run")
    for mine, theirs in zip(model.weights, restored.weights, strict=True):
        assert np.array_equal(tf_variable(mine).numpy(), tf_variable(theirs).numpy())


def test_numbers_that_could_mean_two_layers_are_never_guessed(api, tmp_path):
    api.backend.clear_session()
    old = trained(api, stack(api, 4, 4, 4), tmp_path / "run")
    api.backend.clear_session()
    api.layers.Dense(1)  # takes the first number
    model = stack(api, 4, 4, 4)
    before = values(model)
    assert set(layers_of(model)) == {f"dense_{n}/{last}" for n in (1, 2, 3) for last in ("kernel", "bias")}
    for dry_run in (True, False):
        with pytest.raises(deepfreeze.StructureError) as caught:
            deepfreeze.transfer(model, tmp_path / "run", dry_run=dry_run)
    assert (
        re.search("dense; .*dense_1; .*dense_2 in the checkpoint", caught.value.found)
        and "rename=" in caught.value.todo
    )
    assert same(model, before)
    theirs = layers_of(old)
    literal = deepfreeze.transfer(model, tmp_path / "run", rename=str)
    assert len(literal.loaded) == 4 and all(one.name == one.target for one in literal.loaded)
    assert np.array_equal(layers_of(model)["dense_2/kernel"], theirs["dense_2/kernel"])
    shift = {"dense": "dense_1", "dense_1": "dense_2", "dense_2": "dense_3"}
    deepfreeze.transfer(model, tmp_path / "run", rename=shift)
    assert all(np.array_equal(layers_of(model)[f"{shift[old]}/kernel"], theirs[f"{old}/kernel"]) for old in shift)


def test_what_is_not_asked_for_may_be_ambiguous(tmp_path):
    def model():
        named = keras.layers.Dense(4, name="named")
        return keras.Sequential([keras.Input((4,)), keras.layers.Dense(4), keras.layers.Dense(4), named])

    keras.backend.clear_session()
    old = trained(keras, model(), tmp_path / "run")
    keras.backend.clear_session()
    keras.layers.Dense(1)
    new = model()
    with pytest.raises(deepfreeze.StructureError):
        deepfreeze.transfer(new, tmp_path / "run")
    for arguments in ({"include": "named"}, {"exclude": "dense*"}):
        assert len(deepfreeze.transfer(new, tmp_path / "run", **arguments).loaded) == 2
    assert np.array_equal(new.layers[2].kernel.numpy(), old.layers[2].kernel.numpy())


def test_a_subclassed_model_s_second_instance_takes_all(api, tmp_path):
    class Mine(api.Model):
        def __init__(self):
            super().__init__()
            self.first = api.layers.Dense(5)
            self.rest = [api.layers.Dense(5), api.layers.Dense(2)]

        def call(self, x):
            for layer in (self.first, *self.rest):
                x = layer(x)
            return x

    def made():
        model = Mine()
        model(np.zeros((1, 4), np.float32))
        return model

    old, new = made(), made()
    old.compile("sgd", "mse", jit_compile=False)
    x, y = np.ones((4, 4), np.float32), np.ones((4, 2), np.float32)
    old.fit(x, y, verbose=0, callbacks=[deepfreeze.Checkpoint(tmp_path / "run", every=1, local=None)])
    report = deepfreeze.transfer(new, tmp_path / "run")
    assert len(report.loaded) == 6 and not report.skipped and not report.missing
    for mine, theirs in zip(new.weights, old.weights, strict=True):
        assert np.array_equal(tf_variable(mine).numpy(), tf_variable(theirs).numpy())


def test_a_module_that_is_no_keras_model_takes_its_variables_by_name(tmp_path):
    class Module(tf.Module):
        def __init__(self, outputs):
            super().__init__()
            self.inner = tf.Variable(tf.random.normal((4, 3)), name="inner")
            self.outer = tf.Variable(tf.random.normal((3, outputs)), name="outer")

    old, new = Module(2), Module(5)
    optimizer = keras.optimizers.SGD(0.1, momentum=0.9)
    with deepfreeze.capture(optimizer, old, tmp_path / "run", every=1, local=None) as checkpoint:
        optimizer.apply_gradients((tf.ones_like(v), v) for v in old.trainable_variables)
        checkpoint.step()
    before = new.outer.numpy()
    report = deepfreeze.transfer(new, tmp_path / "run", on_mismatch="skip")
    assert [one.name for one in report.loaded] == ["inner"] and [one.name for one in report.mismatched] == ["outer"]
    assert report.skipped == report.missing == report.untouched == ()
    assert np.array_equal(new.inner.numpy(), old.inner.numpy()) and np.array_equal(new.outer.numpy(), before)


@kerases.one_api_will_do
def test_several_ranks_share_the_page_cache_and_one_reads_past_it(saved, api, monkeypatch):
    _, run = saved
    asked = []
    monkeypatch.setattr("deepfreeze.store.posix_ranges.PosixRanges.past_cache", lambda self: asked.append(True))
    deepfreeze.transfer(network(api), run)
    assert asked == [True]
    monkeypatch.setattr("deepfreeze.reuse.transfer.current", lambda: types.SimpleNamespace(rank=1, size=2))
    deepfreeze.transfer(network(api), run)
    assert asked == [True]


@kerases.one_api_will_do
def test_shapes_tell_which_numbers_are_meant(api, tmp_path):
    api.backend.clear_session()
    old = trained(api, stack(api, 7, 6, 5), tmp_path / "run")
    api.backend.clear_session()
    api.layers.Dense(1)
    model = stack(api, 7, 6, 5)
    assert len(deepfreeze.transfer(model, tmp_path / "run").loaded) == 6
    for mine, theirs in zip(model.weights, old.weights, strict=True):
        assert np.array_equal(tf_variable(mine).numpy(), tf_variable(theirs).numpy())


@kerases.one_api_will_do
def test_layers_cut_off_the_end_go_by_their_names(api, tmp_path):
    api.backend.clear_session()
    old = trained(api, stack(api, 4, 4, 4), tmp_path / "run")
    api.backend.clear_session()
    model = stack(api, 4, 4, 2)
    report = deepfreeze.transfer(model, tmp_path / "run", exclude="dense_2")
    assert len(report.loaded) == 4 and {one.reason for one in report.skipped} == {"excluded"}
    assert np.array_equal(layers_of(model)["dense_1/kernel"], layers_of(old)["dense_1/kernel"])


@kerases.one_api_will_do
def test_the_report_is_a_table_for_people_and_json_for_programs(saved, api, capsys):
    _, run = saved
    model = network(api, classes=5, seed=2)
    report = deepfreeze.transfer(model, run, exclude="norm", on_mismatch="skip")
    assert capsys.readouterr().out == ""
    lines = str(report).splitlines()
    assert lines[0].startswith(f"{run}@2: 4 loaded, 2 mismatched, 4 skipped, 4 untouched")
    rows = [line.split() for line in lines]
    assert ["loaded", "conv", "conv", "2", "416", "B"] in rows
    assert ["skipped", "norm", "4", "128", "B", "excluded"] in rows
    assert any(row[:3] == ["mismatched", "head/kernel", "head/kernel"] for row in rows)
    assert all(len(line) < 120 for line in lines[1:])
    value = json.loads(json.dumps(report.to_json()))
    assert value["info"]["step"] == 2 and value["nbytes"] == report.nbytes and not value["dry_run"]
    assert [one["name"] for one in value["loaded"]] == [one.name for one in report.loaded]
    assert value["mismatched"][0]["target_shape"] in ([5], [6, 5]) and value["missing"] == []


def scaled(api, inner):
    """With a loss scale around it."""
    return (api.optimizers if api is keras else api.mixed_precision).LossScaleOptimizer(inner)


SECOND = {
    "Adam": lambda api: api.optimizers.Adam(1e-2),
    "SGD": lambda api: api.optimizers.SGD(1e-2, momentum=0.9),
    "Adam-scaled": lambda api: scaled(api, api.optimizers.Adam(1e-2)),
}


@kerases.one_api_will_do
@pytest.mark.parametrize(
    "make",
    [pytest.param(make, id=key, marks=[] if key == "Adam" else pytest.mark.full) for key, make in SECOND.items()],
)
def test_a_second_optimizer_s_variables_are_no_weights_either(api, make, tmp_path):
    run = tmp_path / "run"
    model = network(api)
    model.critic_optimizer = make(api)
    model.critic_optimizer.build(model.trainable_variables)
    trained(api, model, run)
    weights = {variable_name(v) for v in model.weights}
    with deepfreeze.read(run) as tensors:
        others = [placed.path for placed in tensors.structure.tensors if placed.path.startswith("critic_optimizer/")]
    assert len(others) > 2

    report = deepfreeze.transfer(network(api, seed=2), run, verbose=0)
    assert {one.name for one in report.loaded} == weights and report.skipped == report.missing == ()
    with pytest.raises(deepfreeze.OptionError):
        deepfreeze.transfer(network(api, seed=2), run, include="*iteration*", verbose=0)
    deepfreeze.export(run, tmp_path / "a.safetensors")
    assert set(load_file(tmp_path / "a.safetensors")) == weights
    # Nor does a model that has no optimizer miss them.
    bare = network(api, seed=3)
    deepfreeze.restore(bare, run)
    assert same(bare, values(model))


@kerases.one_api_will_do
def test_rank_0_writes_the_report_to_standard_error_unless_told_not_to(saved, api, capsys, monkeypatch):
    _, run = saved
    report = deepfreeze.transfer(network(api), run)
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", f"deepfreeze: {report}\n") and "10 loaded" in said.err
    dry = deepfreeze.transfer(network(api), run, dry_run=True)
    assert capsys.readouterr().err == f"deepfreeze: {dry}\n"
    deepfreeze.transfer(network(api), run, verbose=0)
    monkeypatch.setattr("deepfreeze.reuse.transfer.current", lambda: types.SimpleNamespace(rank=1, size=2))
    deepfreeze.transfer(network(api), run)
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "")
    with pytest.raises(deepfreeze.OptionError, match="verbose="):
        deepfreeze.transfer(network(api), run, verbose="yes")
