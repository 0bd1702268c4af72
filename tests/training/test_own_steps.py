"""Models that train themselves, and loops written by hand."""

import keras as keras3
import numpy as np
import pytest
import tensorflow as tf

import deepfreeze
from deepfreeze.state.keras_objects import optimizer_variables
from tests.support import h5, hand_made, kerases, trainings

pytestmark = pytest.mark.tensorflow


def test_a_gan_is_saved_when_told_which_optimizer_counts_the_steps(keras, tmp_path):
    """A GAN with two optimizers is saved when its script says which one counts the steps."""

    def make():
        return hand_made.gan(keras)

    steps = trainings.assert_as_keras_saves_it(keras, make, tmp_path, optimizer="generator_optimizer")
    assert steps == [1, 2, 3, 4, 5]
    paths = h5.datasets(deepfreeze.latest(tmp_path / "run").path / "model.weights.h5")
    assert any("critic_optimizer" in path for path in paths) and any("generator_optimizer" in path for path in paths)
    again = hand_made.gan(keras)
    checkpoint = deepfreeze.Checkpoint(tmp_path / "run", optimizer=again.generator_optimizer)
    assert checkpoint.open(again) == 5
    checkpoint.close()
    (tmp_path / "stock").mkdir()
    model = trainings.train_undisturbed(keras, make, tmp_path / "stock", optimizer="generator_optimizer")
    for mine, theirs in zip(again.weights, model.weights, strict=True):
        assert np.array_equal(mine, theirs)


def test_a_gan_that_names_no_optimizer_is_told_which_there_are(keras, tmp_path):
    """A GAN whose script does not say which optimizer counts the steps is told which optimizers there are."""
    with pytest.raises(deepfreeze.UnsupportedError, match=r"generator_optimizer"):
        hand_made.gan(keras).fit(trainings.data(5), verbose=0, callbacks=[deepfreeze.Checkpoint(tmp_path / "run")])


def test_a_loop_is_told_the_line_that_builds_each_optimizer(keras, tmp_path):
    """``fit`` builds them in its first trace. Nobody can trace a loop."""
    model = hand_made.gan(keras, builds=False)
    model._more = [keras.optimizers.Adam()]
    with pytest.raises(deepfreeze.UnsupportedError) as raised:
        deepfreeze.capture(model.generator_optimizer, model, tmp_path / "run")
    assert "model.critic_optimizer.build(model.critic.trainable_variables)" in raised.value.todo
    assert "model._more[0].build(the_variables_that_it_trains)" in raised.value.todo


@kerases.one_will_do
def test_an_optimizer_of_another_model_is_refused(keras, tmp_path):
    with pytest.raises(deepfreeze.UnsupportedError, match=r"another SGD"):
        deepfreeze.Checkpoint(tmp_path / "run", optimizer=keras.optimizers.SGD()).open(trainings.dense(keras))


def hand_written(keras, model, optimizer, compiled):
    """A training step of a loop of one's own, with an average of the weights beside it."""

    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x) - y) ** 2)
        weights = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))

    return {"eager": step, "graph": tf.function(step), "xla": tf.function(step, jit_compile=True)}[compiled]


@kerases.cases(["eager", "graph", "xla"], both=["graph"], name="compiled")
def test_a_hand_written_loop_is_saved_and_resumed_bit_for_bit(keras, compiled, tmp_path):
    def train(model, optimizer, start, stop):
        step = hand_written(keras, model, optimizer, compiled)
        for x, y in trainings.data(8).skip(start).take(stop - start):
            step(x, y)
            yield

    def make():
        keras.utils.set_random_seed(1)
        layers = [keras.Input((trainings.FEATURES,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(1)]
        model, optimizer = keras.Sequential(layers), keras.optimizers.Adam(0.1)
        optimizer.build(model.trainable_variables)
        return model, optimizer

    whole = make()
    for _ in train(*whole, 0, 8):
        pass
    first, second = make(), make()
    for (model, optimizer), stop, begin in ((first, 5, 0), (second, 8, 5)):
        with deepfreeze.capture(optimizer, model, tmp_path / "run", every=2, keep=9) as checkpoint:
            assert checkpoint.start == begin
            for _ in train(model, optimizer, checkpoint.start, stop):
                assert checkpoint.step()
    assert [info.step for info in deepfreeze.checkpoints(tmp_path / "run")] == [2, 4, 5, 6, 8]
    for mine, theirs in zip(second[0].weights, whole[0].weights, strict=True):
        assert np.array_equal(mine, theirs)
    for mine, theirs in zip(*(optimizer_variables(optimizer) for _, optimizer in (second, whole)), strict=True):
        assert np.array_equal(mine, theirs)


class Regression(tf.Module):
    """No Keras anywhere but for the optimizer."""

    def __init__(self):
        super().__init__()
        self.parts = [tf.Variable(tf.ones([trainings.FEATURES, 4]), name="w"), tf.Variable(tf.ones([4, 1]), name="w")]
        self.seen = tf.Variable(0, dtype=tf.int64, trainable=False, name="seen")

    def __call__(self, x):
        self.seen.assign_add(1)
        return x @ self.parts[0] @ self.parts[1]


def test_a_plain_module_is_saved_by_its_attributes_and_resumed(keras, tmp_path):
    """A plain tf.Module is saved by the names of its attributes, and resumed."""

    def made():
        module, optimizer = Regression(), keras.optimizers.Adam(0.1)
        optimizer.build(module.trainable_variables)
        return module, optimizer, hand_written(keras, module, optimizer, "graph")

    def train(stop):
        module, optimizer, step = made()
        with deepfreeze.capture(optimizer, module, tmp_path / "run", every=3) as checkpoint:
            for x, y in trainings.data(7).skip(checkpoint.start).take(stop - checkpoint.start):
                step(x, y)
                checkpoint.step()
        return module, optimizer

    whole, whole_optimizer, step = made()
    for x, y in trainings.data(7).take(6):
        step(x, y)
    train(4)
    resumed, optimizer = train(6)
    assert int(resumed.seen) == int(whole.seen) == 6
    for mine, theirs in zip(resumed.parts, whole.parts, strict=True):
        assert np.array_equal(mine, theirs)
    slots = [optimizer_variables(one) for one in (optimizer, whole_optimizer)]
    assert len(slots[0]) > 4
    for mine, theirs in zip(*slots, strict=True):
        assert np.array_equal(mine, theirs)
    found = deepfreeze.latest(tmp_path / "run")
    assert found.step == 6 and found.framework["api"] == "tensorflow"
    values = h5.datasets(found.path / "model.weights.h5")
    assert {path for path in values if path.startswith("module")} == {"module/parts/0", "module/parts/1", "module/seen"}
    assert np.array_equal(values["module/parts/0"], resumed.parts[0])
    fresh = Regression()
    deepfreeze.restore(fresh, tmp_path / "run")
    assert np.array_equal(fresh.parts[1], resumed.parts[1])


def test_what_is_neither_model_nor_module_is_refused(tmp_path):
    class Bag:
        """Has variables, and no way to name them."""

        def __init__(self):
            self.variables = self.trainable_variables = [tf.Variable(1.0)]
            self.non_trainable_variables = []

    with pytest.raises(deepfreeze.UnsupportedError, match=r"tf\.Module"):
        bag, optimizer = Bag(), keras3.optimizers.SGD()
        with deepfreeze.capture(optimizer, bag, tmp_path / "run", every=1) as checkpoint:
            optimizer.apply_gradients([(tf.constant(1.0), bag.variables[0])])
            checkpoint.step()


def test_an_exception_in_a_loop_leaves_the_run_free(tmp_path):
    def job(fails):
        model = trainings.dense(keras3)
        step = hand_written(keras3, model, model.optimizer, "graph")
        with deepfreeze.capture(model.optimizer, model, tmp_path / "run", every=2, wait_for="external") as checkpoint:
            for n, (x, y) in enumerate(trainings.data(6).skip(checkpoint.start)):
                step(x, y)
                checkpoint.step()
                if n == 3 and fails:
                    raise RuntimeError("the user's own")
        return checkpoint

    with pytest.raises(RuntimeError, match="own"):
        job(fails=True)
    assert deepfreeze.latest(tmp_path / "run").step == 4
    assert job(fails=False).stats.resumed == 4


def test_arguments_in_the_wrong_order_are_named(tmp_path):
    model = trainings.dense(keras3)
    with pytest.raises(deepfreeze.OptionError, match="the optimizer, then the model"):
        deepfreeze.capture(model, model.optimizer, tmp_path / "run")
