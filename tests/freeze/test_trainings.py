"""Trainings with a twist: what is saved is still what save_weights would have stored, and nothing is left behind."""

import contextlib
import gc
import weakref

import keras
import numpy as np
import pytest
import tensorflow as tf

import deepfreeze
from tests.support import h5, kerases


def data(steps):
    rng = np.random.default_rng(0)
    x, y = rng.random((steps * 2, 6), np.float32), rng.random((steps * 2, 1), np.float32)
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(2)


def make(optimizer="adam", cls=keras.Sequential, **compiling):
    keras.utils.set_random_seed(1)
    model = cls([keras.Input((6,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(1)])
    model.compile(optimizer, "mse", jit_compile=False, **compiling)
    return model


class SaveWeights(keras.callbacks.Callback):
    """Stock save_weights after every batch."""

    def __init__(self, folder):
        super().__init__()
        self.folder = folder

    def on_train_batch_end(self, batch, logs=None):
        step = int(self.model.optimizer.iterations.numpy())
        self.model.save_weights(self.folder / f"{step}.weights.h5")


def assert_every_step_is_as_keras_saves_it(model, tmp_path, steps=5, **options):
    checkpoint = deepfreeze.Checkpoint(tmp_path / "run", every=1, keep=50, **options)
    model.fit(data(steps), verbose=0, shuffle=False, callbacks=[SaveWeights(tmp_path), checkpoint])
    found = deepfreeze.checkpoints(tmp_path / "run")
    assert found
    for info in found:
        h5.assert_same(info.path / "model.weights.h5", tmp_path / f"{info.step}.weights.h5")
    return [info.step for info in found]


OPTIMIZERS = {
    "sgd-momentum": lambda: keras.optimizers.SGD(0.01, momentum=0.9, nesterov=True),
    "clipnorm": lambda: keras.optimizers.Adam(global_clipnorm=0.5),
    "decay": lambda: keras.optimizers.AdamW(weight_decay=0.1),
    "ema": lambda: keras.optimizers.Adam(use_ema=True, ema_overwrite_frequency=2),
    "schedule": lambda: keras.optimizers.SGD(keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.9)),
    "loss-scale": lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(), initial_scale=8.0),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_whatever_the_optimizer_does_each_checkpoint_is_as_keras_saves_it(name, tmp_path):
    if name == "loss-scale" and kerases.KERAS_IS_2:
        pytest.skip("Keras 2's LossScaleOptimizer is in trainings/test_optimizers.py")
    assert assert_every_step_is_as_keras_saves_it(make(OPTIMIZERS[name]()), tmp_path) == [1, 2, 3, 4, 5]


def test_a_variable_that_keras_keeps_in_two_datasets_is_in_both(tmp_path):
    class Tied(keras.layers.Layer):
        def __init__(self, of):
            super().__init__()
            self.of = of

        def build(self, shape):
            self.kernel = self.of.kernel
            self.own = self.add_weight(shape=(6,))

        def call(self, x):
            return tf.matmul(x, self.kernel, transpose_b=True) + self.own

    first = keras.layers.Dense(8, use_bias=False)
    inputs = keras.Input((6,))
    model = keras.Model(inputs, keras.layers.Dense(1)(Tied(first)(first(inputs))))
    model.compile("adam", "mse", jit_compile=False)
    assert_every_step_is_as_keras_saves_it(model, tmp_path)


class Clipped(keras.Sequential):
    """A critic: its weights are clipped after the optimizer's update."""

    def train_step(self, batch):
        logs = super().train_step(batch)
        for variable in self.trainable_variables:
            variable.assign(tf.clip_by_value(variable, -0.01, 0.01))
        return logs


def test_what_train_step_writes_after_the_update_is_in_the_checkpoint(tmp_path):
    assert_every_step_is_as_keras_saves_it(make(cls=Clipped), tmp_path)
    values = h5.datasets(deepfreeze.latest(tmp_path / "run").path / "model.weights.h5")
    assert all(np.abs(v).max() <= 0.01 for path, v in values.items() if path.startswith("layers"))


def test_the_final_checkpoint_is_the_training_state_not_the_averages_keras_ends_with(tmp_path):
    model = make(keras.optimizers.Adam(0.1, use_ema=True, ema_momentum=0.5))
    checkpoint = deepfreeze.Checkpoint(tmp_path / "run", every=4)
    model.fit(data(6), verbose=0, shuffle=False, callbacks=[SaveWeights(tmp_path), checkpoint])
    h5.assert_same(deepfreeze.latest(tmp_path / "run").path / "model.weights.h5", tmp_path / "6.weights.h5")


@kerases.needs_keras_3
def test_a_skipped_update_under_a_dynamic_loss_scale_does_not_count_as_a_step(tmp_path):
    model = make(keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(), initial_scale=8.0))
    rng = np.random.default_rng(0)
    x, y = rng.random((12, 6), np.float32), rng.random((12, 1), np.float32)
    x[4:6] = np.inf  # the third batch
    batches = tf.data.Dataset.from_tensor_slices((x, y)).batch(2)
    checkpoint = deepfreeze.Checkpoint(tmp_path / "run", every=2, keep=9)
    model.fit(batches, verbose=0, shuffle=False, callbacks=[SaveWeights(tmp_path), checkpoint])
    assert [info.step for info in deepfreeze.checkpoints(tmp_path / "run")] == [2, 4, 5]


def test_two_checkpoints_in_one_fit_both_save(tmp_path):
    model = make()
    both = [deepfreeze.Checkpoint(tmp_path / name, every=2) for name in ("a", "b")]
    model.fit(data(4), verbose=0, shuffle=False, callbacks=both)
    for name in ("a", "b"):
        assert [info.step for info in deepfreeze.checkpoints(tmp_path / name)] == [2, 4]
    model.fit(data(2), verbose=0, shuffle=False)


def test_the_users_own_instance_methods_are_put_back(tmp_path):
    model = make()
    inner = model.train_step
    calls = []

    def own(batch):
        calls.append(1)
        return inner(batch)

    model.train_step = own
    model.fit(data(3), verbose=0, shuffle=False, callbacks=[deepfreeze.Checkpoint(tmp_path / "run", every=2)])
    assert calls and model.train_step is own


class Interrupt(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if batch == 4:
            raise KeyboardInterrupt


def test_after_an_interrupt_the_same_callback_and_model_go_on(tmp_path):
    model, checkpoint = make(), deepfreeze.Checkpoint(tmp_path / "run", every=2, keep=9, wait_for="external")
    with pytest.raises(KeyboardInterrupt):
        model.fit(data(9), verbose=0, shuffle=False, callbacks=[checkpoint, Interrupt()])
    model.fit(data(3), verbose=0, shuffle=False, callbacks=[checkpoint])
    assert [info.step for info in deepfreeze.checkpoints(tmp_path / "run")] == [2, 4, 6, 8]


def test_a_forgotten_callback_gives_everything_back(tmp_path):
    def interrupted():
        model = make()
        callbacks = [deepfreeze.Checkpoint(tmp_path / "run", every=2, wait_for="external"), Interrupt()]
        with contextlib.suppress(KeyboardInterrupt):
            model.fit(data(9), verbose=0, shuffle=False, callbacks=callbacks)
        return weakref.ref(callbacks[0])

    forgotten = interrupted()
    gc.collect()
    assert forgotten() is None
    model = make()
    checkpoint = deepfreeze.Checkpoint(tmp_path / "run", every=2)
    assert checkpoint.open(model) == 4
    checkpoint.close()


def test_a_lock_held_by_this_process_says_how_to_free_it(tmp_path):
    held = deepfreeze.Checkpoint(tmp_path / "run")
    held.open(make())
    with pytest.raises(deepfreeze.LockedError, match=r"close\(\) on the Checkpoint"):
        deepfreeze.Checkpoint(tmp_path / "run").open(make())
    held.close()


def test_a_second_fit_goes_on_from_the_model_as_it_is(tmp_path):
    model, checkpoint = make(), deepfreeze.Checkpoint(tmp_path / "run", every=4, final=False)
    model.fit(data(7), verbose=0, shuffle=False, callbacks=[checkpoint])
    model.optimizer.learning_rate = 1e-5
    model.fit(data(1), verbose=0, shuffle=False, callbacks=[checkpoint])
    assert int(model.optimizer.iterations.numpy()) == 8
    assert float(model.optimizer.learning_rate.numpy()) == pytest.approx(1e-5)


def test_the_buffers_of_a_finished_fit_are_freed(tmp_path):
    from deepfreeze.freeze.capture import Capture

    model, checkpoint = make(), deepfreeze.Checkpoint(tmp_path / "run", every=2)
    for _ in range(3):
        model.fit(data(2), verbose=0, shuffle=False, callbacks=[checkpoint])
    gc.collect()
    assert sum(isinstance(thing, Capture) for thing in gc.get_objects()) <= 1


def test_an_uncompiled_model_restores_the_weights_of_a_full_checkpoint(tmp_path):
    model = make()
    model.fit(data(2), verbose=0, shuffle=False, callbacks=[deepfreeze.Checkpoint(tmp_path / "run", every=2)])
    bare = keras.Sequential([keras.Input((6,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(1)])
    deepfreeze.restore(bare, tmp_path / "run")
    assert all(np.array_equal(a, b) for a, b in zip(bare.get_weights(), model.get_weights(), strict=True))


@kerases.needs_keras_3
def test_a_distributed_optimizer_inside_a_loss_scale_is_refused():
    inner = deepfreeze.DistributedOptimizer(keras.optimizers.Adam())
    model = make(keras.optimizers.LossScaleOptimizer(inner))
    with pytest.raises(deepfreeze.UnsupportedError, match="the other way round"):
        deepfreeze.Checkpoint("unused").open(model)
