"""``open`` before ``compile``: the model gets its weights at once, and its optimizer and seeds when ``fit`` begins."""

import numpy as np
import pytest

import deepfreeze
from deepfreeze.errors import StructureError
from tests.support import kerases, trainings
from tests.support.state import tensors

pytestmark = pytest.mark.tensorflow


def build(keras, units=8):
    keras.utils.set_random_seed(1)
    layers = keras.layers
    # Keras 2 hides the seed of a dropout.
    noise = [] if kerases.is_2(keras) else [layers.Dropout(0.5)]
    stack = [layers.Dense(units, "relu"), *noise, layers.Dense(1)]
    return keras.Sequential([keras.Input((trainings.FEATURES,)), *stack])


def compiled(model, optimizer="adam"):
    model.compile(optimizer, "mse", metrics=["mae"], jit_compile=False)
    return model


def train(model, steps, *callbacks, skip=0):
    model.fit(trainings.data(steps + skip).skip(skip), verbose=0, shuffle=False, callbacks=list(callbacks))


def values(model):
    return {tensor.path: np.asarray(tensor.variable).tobytes() for tensor in tensors(model)}


def saved(keras, run, steps=4, **options):
    model = compiled(build(keras))
    train(model, steps, deepfreeze.Checkpoint(run, every=2, keep=100, **options))
    return model


@kerases.one_will_do
def test_the_weights_come_at_once_and_the_optimizer_with_fit(keras, tmp_path):
    run = tmp_path / "run"
    whole = saved(keras, run)
    train(whole, 3, skip=4)
    model, checkpoint = build(keras), deepfreeze.Checkpoint(run, every=100)
    for variable in model.trainable_variables:
        variable.assign(variable + 1)
    assert checkpoint.open(model) == 4 and checkpoint.open(model) == 4
    with deepfreeze.read(run) as stored:
        kernels = [stored[name] for name in stored if name.endswith("kernel") and "adam" not in name.lower()]
    assert kernels[0].tobytes() == np.asarray(model.trainable_variables[0]).tobytes()
    train(compiled(model), 3, checkpoint, skip=4)
    assert values(model) == values(whole), "with its moments and its dropout's seed, bit for bit"
    assert [info.step for info in deepfreeze.checkpoints(run)] == [4, 7]


@pytest.mark.full
def test_weights_that_the_program_has_changed_meanwhile_stay(keras, tmp_path):
    run = tmp_path / "run"
    saved(keras, run)
    model, checkpoint = build(keras), deepfreeze.Checkpoint(run, every=1, keep=100)
    checkpoint.open(model)
    model.trainable_variables[0].assign(np.zeros((trainings.FEATURES, 8), "float32"))
    seen = []

    class First(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            seen.append((np.asarray(model.trainable_variables[0]).max(), trainings.count(model.optimizer)))

    train(compiled(model), 1, checkpoint, First())
    assert seen == [(0.0, 4)]


@pytest.mark.full
@pytest.mark.parametrize("case", ["fresh", "off", "weights"])
def test_where_there_is_no_optimizer_to_restore_it_begins_anew(keras, tmp_path, case):
    run = tmp_path / "run"
    if case != "fresh":
        saved(keras, run, state="weights" if case == "weights" else "full")
    model = build(keras)
    checkpoint = deepfreeze.Checkpoint(run, every=2, keep=100, resume="off" if case == "off" else "auto")
    start = 4 if case == "weights" else 0
    assert checkpoint.open(model) == start
    train(compiled(model), 3, checkpoint)
    assert deepfreeze.latest(run).step == start + 3


@pytest.mark.full
@kerases.one_will_do
def test_another_optimizer_is_refused_when_it_comes_and_nothing_is_lost(keras, tmp_path):
    run = tmp_path / "run"
    saved(keras, run)
    model, checkpoint = build(keras), deepfreeze.Checkpoint(run)
    checkpoint.open(model)
    with pytest.raises(StructureError, match="with the same optimizer"):
        train(compiled(model, keras.optimizers.SGD(0.1, momentum=0.9)), 1, checkpoint)
    assert [info.step for info in deepfreeze.checkpoints(run)] == [2, 4]
    assert deepfreeze.Checkpoint(run).open(compiled(build(keras))) == 4, "the lock is free"
