"""Whatever the optimizer does to weights and slots, each checkpoint is what Keras would have saved after that step."""

import importlib
import inspect

import keras as keras3
import numpy as np
import pytest
import tensorflow as tf

import deepfreeze
from tests.support import kerases, trainings

KERASES = {name: importlib.import_module(name) for name in kerases.NAMES}
WRAPPERS = ("LossScaleOptimizer", "MultiOptimizer")  # of others: they have tests of their own


def every_class(keras):
    """Every optimizer class that a Keras ships, by name."""
    base = keras.optimizers.Optimizer
    found = {
        name: cls for name, cls in vars(keras.optimizers).items() if inspect.isclass(cls) and issubclass(cls, base)
    }
    return [name for name, cls in found.items() if cls is not base and name not in WRAPPERS]


CASES = [(api, name) for api, keras in KERASES.items() for name in every_class(keras)]


def test_there_are_as_many_optimizers_as_the_kerases_ship():
    assert len(CASES) >= 10 * len(KERASES), CASES


@pytest.mark.parametrize(("api", "name"), CASES)
def test_every_optimizer_class_that_keras_ships_is_saved(api, name, tmp_path):
    keras = KERASES[api]
    model = trainings.dense(keras, getattr(keras.optimizers, name)())
    assert trainings.assert_as_keras_saves_it(keras, model, tmp_path, trainings.data(3)) == [1, 2, 3]


def test_several_optimizers_under_one_are_saved(tmp_path):
    optimizers = keras3.optimizers
    if not hasattr(optimizers, "MultiOptimizer"):
        pytest.skip("this Keras has none")
    several = optimizers.OptimizerMap(optimizers.Adam(), {".*bias": optimizers.SGD(0.1, momentum=0.9)})
    model = trainings.dense(keras3, optimizers.MultiOptimizer(several))
    assert trainings.assert_as_keras_saves_it(keras3, model, tmp_path) == [1, 2, 3, 4, 5]


TWISTS = {
    "momentum": lambda keras: keras.optimizers.SGD(0.01, momentum=0.9, nesterov=True),
    "clipnorm": lambda keras: keras.optimizers.Adam(clipnorm=0.1),
    "global clipnorm": lambda keras: keras.optimizers.Adam(global_clipnorm=0.1),
    "clipvalue": lambda keras: keras.optimizers.SGD(clipvalue=0.01),
    "weight decay": lambda keras: keras.optimizers.AdamW(weight_decay=0.1),
    "EMA": lambda keras: keras.optimizers.Adam(use_ema=True),
    "EMA that overwrites": lambda keras: keras.optimizers.Adam(use_ema=True, ema_overwrite_frequency=2),
    "schedule": lambda keras: keras.optimizers.SGD(keras.optimizers.schedules.CosineDecay(0.1, 10)),
    "amsgrad": lambda keras: keras.optimizers.Adam(amsgrad=True),
}


@pytest.mark.parametrize("name", TWISTS)
def test_clipping_decay_averages_and_schedules_are_saved_as_they_are(keras, name, tmp_path):
    model = trainings.dense(keras, TWISTS[name](keras))
    assert trainings.assert_as_keras_saves_it(keras, model, tmp_path) == [1, 2, 3, 4, 5]


def test_constraints_are_applied_before_the_capture(keras, tmp_path):
    norm = keras.constraints.MaxNorm(0.1)
    layers = [keras.layers.Dense(8, kernel_constraint=norm), keras.layers.Dense(1, kernel_constraint=norm)]
    model = keras.Sequential([keras.Input((trainings.FEATURES,)), *layers])
    model.compile(keras.optimizers.SGD(1.0), "mse", jit_compile=False)
    trainings.assert_as_keras_saves_it(keras, model, tmp_path)


@kerases.needs_keras_3
@pytest.mark.parametrize("per_execution", [1, 4])
def test_gradient_accumulation_is_captured_where_an_update_ends(per_execution, tmp_path):
    optimizer = keras3.optimizers.Adam(gradient_accumulation_steps=3)
    model = trainings.dense(keras3, optimizer, steps_per_execution=per_execution)
    # Between two executions of four batches the accumulators hold something already: the stock file is made batch by batch.
    reference = trainings.dense(keras3, keras3.optimizers.Adam(gradient_accumulation_steps=3))
    reference.fit(trainings.data(12), verbose=0, shuffle=False, callbacks=[trainings.save_weights(keras3, tmp_path)])
    checkpoint = deepfreeze.Checkpoint(tmp_path / "run", every=2, keep=9)
    model.fit(trainings.data(12), verbose=0, shuffle=False, callbacks=[checkpoint])
    assert trainings.assert_run_is(tmp_path / "run", tmp_path) == [2, 4]


@kerases.needs_keras_3
def test_gradient_accumulation_resumes_bit_for_bit(tmp_path):
    def make():
        return trainings.dense(keras3, keras3.optimizers.Adam(gradient_accumulation_steps=2))

    whole, first, second = make(), make(), make()
    whole.fit(trainings.data(8), verbose=0, shuffle=False)
    checkpoint = deepfreeze.Checkpoint(tmp_path / "run", every=2)
    first.fit(trainings.data(8).take(4), verbose=0, shuffle=False, callbacks=[checkpoint])
    again = deepfreeze.Checkpoint(tmp_path / "run", every=2)
    start = again.open(second)
    assert start == 2, "steps are updates"
    second.fit(trainings.data(8).skip(2 * start), verbose=0, shuffle=False, callbacks=[again])
    for mine, theirs in zip(second.variables, whole.variables, strict=True):
        assert np.array_equal(mine, theirs)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16", "bfloat16", "float64"])
def test_every_precision_is_saved_bit_for_bit(keras, policy, tmp_path):
    if kerases.is_2(keras) and policy == "bfloat16":
        pytest.skip("Keras 2 itself can't save bfloat16 variables")
    before = keras.mixed_precision.global_policy() if kerases.is_2(keras) else keras.config.dtype_policy()
    setter = keras.mixed_precision.set_global_policy
    setter(policy)
    try:
        model = trainings.dense(keras)
        trainings.assert_as_keras_saves_it(keras, model, tmp_path)
    finally:
        setter(before)


def test_a_skipped_update_under_mixed_float16_does_not_count_as_a_step(keras, tmp_path):
    optimizer = (
        keras.mixed_precision.LossScaleOptimizer(keras.optimizers.Adam())
        if kerases.is_2(keras)
        else keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(), initial_scale=8.0)
    )
    model = trainings.dense(keras, optimizer)
    x = np.random.default_rng(0).random((12, trainings.FEATURES), np.float32)
    x[4:6] = np.inf  # the third batch
    batches = tf.data.Dataset.from_tensor_slices((x, x[:, :1])).batch(2)
    steps = trainings.assert_as_keras_saves_it(keras, model, tmp_path, batches)
    # Keras 2 counts an update that its loss scale skips as a step, Keras 3 does not.
    assert steps == list(range(1, 7 if kerases.is_2(keras) else 6)), "six batches, one of them without an update"
