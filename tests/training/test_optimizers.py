"""Whatever the optimizer does to weights and slots, each checkpoint is what Keras would have saved after that step."""

import importlib

import keras as keras3
import numpy as np
import pytest

import deepfreeze
from deepfreeze.state.keras_objects import optimizer_variables
from tests.support import h5, kerases, optimizers, trainings
from tests.support.optimizers import CASES, TWISTS, overflowing, scaled

pytestmark = pytest.mark.tensorflow
# Those with slots of every kind; the rest in `make test-all`.
OFTEN = ("Adam", "Ftrl", "Nadam", "SGD")


def test_there_are_as_many_optimizers_as_the_kerases_ship():
    assert len(CASES) >= 10 * len(kerases.NAMES), CASES


@pytest.mark.parametrize(
    ("api", "name"),
    [pytest.param(api, name, marks=[] if name in OFTEN else pytest.mark.full) for api, name in CASES],
)
def test_every_optimizer_class_that_keras_ships_is_saved(api, name, tmp_path):
    keras = importlib.import_module(api)

    def make():
        return optimizers.trained_by(keras, name)

    more = optimizers.left_out(keras, name)
    assert trainings.assert_as_keras_saves_it(keras, make, tmp_path, trainings.data(3), more=more) == [1, 2, 3]


def test_several_optimizers_under_one_are_saved(tmp_path):
    if optimizers.several(keras3) is None:
        pytest.skip("this Keras has none")
    steps = trainings.assert_as_keras_saves_it(keras3, lambda: optimizers.several(keras3), tmp_path)
    assert steps == [1, 2, 3, 4, 5]


# The Kerases keep averages and schedules in different variables.
@kerases.cases(TWISTS, both=("ema_overwrites", "schedule"), often=("global_clipnorm", "ema"))
def test_clipping_decay_averages_and_schedules_are_saved_as_they_are(keras, name, tmp_path):
    def make():
        return trainings.dense(keras, TWISTS[name](keras))

    assert trainings.assert_as_keras_saves_it(keras, make, tmp_path) == [1, 2, 3, 4, 5]


@kerases.one_will_do
def test_constraints_are_applied_before_the_capture(keras, tmp_path):
    trainings.assert_as_keras_saves_it(keras, lambda: optimizers.constrained(keras), tmp_path)


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
    trainings.assert_run_is(tmp_path / "run", tmp_path, [2, 4])


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


@pytest.fixture
def precision(keras):
    """A function that sets Keras's global policy, until the test's end."""
    with optimizers.precision(keras) as set_policy:
        yield set_policy


@kerases.cases(
    ["mixed_float16", "mixed_bfloat16", "bfloat16", "float64"],
    both=["mixed_float16"],
    name="policy",
    often=["bfloat16"],
)
def test_every_precision_is_saved_bit_for_bit(keras, precision, policy, tmp_path):
    if kerases.is_2(keras) and policy == "bfloat16":
        pytest.skip("Keras 2 itself can't save bfloat16 variables")
    precision(policy)
    trainings.assert_as_keras_saves_it(keras, lambda: trainings.dense(keras), tmp_path)


# Six batches; the one that is skipped, and every how many steps is saved. Keras 2 counts a skipped update as a step, Keras 3
# does not: there, saved steps are the next batch's, or none where no batch follows.
SKIPS = [
    pytest.param([0, 3], 2, 1, "auto", id="first"),
    pytest.param([2], 3, 1, "auto", id="due"),
    pytest.param([0, 5], 1, 1, "auto", id="every_due", marks=pytest.mark.full),
    pytest.param([3], 4, 4, "auto", id="inside-auto"),
    pytest.param([3], 4, 4, "graph", id="inside-graph", marks=pytest.mark.full),
    pytest.param([5], 6, 4, "auto", id="last-auto", marks=pytest.mark.full),
    pytest.param([5], 6, 4, "graph", id="last-graph"),
]


@kerases.one_will_do
@pytest.mark.parametrize(("skipped", "every", "per_execution", "capture"), SKIPS)
def test_an_update_skipped_under_float16_leaves_checkpoints_right(
    keras, precision, skipped, every, per_execution, capture, tmp_path
):
    """After an update that mixed_float16 skips, every checkpoint still is that of its step."""
    precision("mixed_float16")

    inputs = overflowing(6, skipped)
    trainings.train_undisturbed(keras, lambda: scaled(keras), tmp_path, inputs)
    model = trainings.alike(keras, lambda: scaled(keras, steps_per_execution=per_execution))
    checkpoint = deepfreeze.Checkpoint(tmp_path / "run", every=every, keep=9, capture=deepfreeze.Capture(path=capture))
    model.fit(inputs, verbose=0, shuffle=False, callbacks=[checkpoint])
    last = 6 if kerases.is_2(keras) else 6 - len(skipped)
    assert trainings.stock_steps(tmp_path) == list(range(1, last + 1))
    steps = [step for step in range(1, last + 1) if step % every == 0 or step == last]
    if skipped == [5] and steps[-1] % every and not kerases.is_2(keras):
        # Taken at the very end: after the skipped update, which has changed the loss scale.
        assert [info.step for info in deepfreeze.checkpoints(tmp_path / "run")] == steps
        model.save_weights(tmp_path / "end.weights.h5")
        h5.assert_same(deepfreeze.latest(tmp_path / "run").path / "model.weights.h5", tmp_path / "end.weights.h5")
        return
    trainings.assert_run_is(tmp_path / "run", tmp_path, steps)


def scalars(optimizer):
    """The values of the optimizer's scalars."""
    return [float(np.asarray(each)) for each in optimizer_variables(optimizer) if np.asarray(each).shape == ()]


def test_a_training_resumed_behind_a_skipped_update_equals_a_whole_one(keras, precision, tmp_path):
    """The loss scale was halved, and its counter begins again: both are in the checkpoint, which stock Keras loads. Keras 2 itself saves
    neither."""
    precision("mixed_float16")

    def make():
        return trainings.alike(keras, lambda: scaled(keras))

    whole, first, second = make(), make(), make()
    inputs = overflowing(8, [2])
    whole.fit(inputs, verbose=0, shuffle=False)
    options = {"verbose": 0, "shuffle": False}
    first.fit(inputs.take(5), **options, callbacks=[deepfreeze.Checkpoint(tmp_path / "run", every=9)])
    checkpoint = deepfreeze.Checkpoint(tmp_path / "run", every=9)
    assert checkpoint.open(second) == (5 if kerases.is_2(keras) else 4)
    second.fit(inputs.skip(5), **options, callbacks=[checkpoint])
    ours, theirs = optimizer_variables(second.optimizer), optimizer_variables(whole.optimizer)
    assert 2.0**14 in scalars(whole.optimizer), "a scale that was halved once"
    assert all(np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True))
    second.load_weights(deepfreeze.latest(tmp_path / "run").path / "model.weights.h5")
    assert all(np.array_equal(a, b) for a, b in zip(second.get_weights(), whole.get_weights(), strict=True))


def test_a_checkpoint_that_has_no_loss_scale_is_resumed(keras, precision, tmp_path, monkeypatch):
    """As older ones of Keras 2: the scale then begins with its first value. Keras 3 has it among the optimizer's variables."""
    precision("mixed_float16")
    with monkeypatch.context() as patch:
        patch.setattr("deepfreeze.state.private_api.loss_scale", lambda optimizer: [])
        model = trainings.alike(keras, lambda: scaled(keras))
        model.fit(overflowing(3, []), verbose=0, callbacks=[deepfreeze.Checkpoint(tmp_path / "run", every=3)])
    model = trainings.alike(keras, lambda: scaled(keras))
    assert deepfreeze.Checkpoint(tmp_path / "run", every=3).open(model) == 3
    assert 2.0**15 in scalars(model.optimizer)
