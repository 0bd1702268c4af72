"""The callback among others in fit: what is saved is the training's state, and nothing is left behind."""

import contextlib
import gc
import signal
import threading
import weakref

import keras
import numpy as np
import pytest
import tensorflow as tf

import deepfreeze
from deepfreeze.store.lock import Lock
from tests.support import h5, kerases, trainings

pytestmark = pytest.mark.tensorflow


class Clipped(keras.Sequential):
    """A critic: its weights are clipped after the optimizer's update."""

    def train_step(self, batch):
        logs = super().train_step(batch)
        for variable in self.trainable_variables:
            variable.assign(tf.clip_by_value(variable, -0.01, 0.01))
        return logs


def test_what_train_step_writes_after_the_update_is_in_the_checkpoint(tmp_path):
    trainings.assert_as_keras_saves_it(keras, lambda: trainings.dense(keras, cls=Clipped), tmp_path)
    values = h5.datasets(deepfreeze.latest(tmp_path / "run").path / "model.weights.h5")
    assert all(np.abs(v).max() <= 0.01 for path, v in values.items() if path.startswith("layers"))


def test_the_final_checkpoint_is_the_state_and_not_the_averages(tmp_path):
    """The final checkpoint is the training state not the averages keras ends with."""

    def make():
        return trainings.dense(keras, keras.optimizers.Adam(0.1, use_ema=True, ema_momentum=0.5))

    trainings.assert_as_keras_saves_it(keras, make, tmp_path, trainings.data(6), every=4)


def test_two_checkpoints_in_one_fit_both_save(tmp_path):
    model = trainings.dense(keras)
    both = [deepfreeze.Checkpoint(tmp_path / name, every=2) for name in ("a", "b")]
    model.fit(trainings.data(4), verbose=0, shuffle=False, callbacks=both)
    for name in ("a", "b"):
        assert [info.step for info in deepfreeze.checkpoints(tmp_path / name)] == [2, 4]
    model.fit(trainings.data(2), verbose=0, shuffle=False)


def test_the_users_own_instance_methods_are_put_back(tmp_path):
    model = trainings.dense(keras)
    inner = model.train_step
    calls = []

    def own(batch):
        calls.append(1)
        return inner(batch)

    model.train_step = own
    checkpoint = deepfreeze.Checkpoint(tmp_path / "run", every=2)
    model.fit(trainings.data(3), verbose=0, shuffle=False, callbacks=[checkpoint])
    checkpoint.close()
    assert calls and model.train_step is own


class Interrupt(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if batch == 4:
            raise KeyboardInterrupt


def test_after_an_interrupt_the_same_callback_and_model_go_on(tmp_path):
    model, checkpoint = (
        trainings.dense(keras),
        deepfreeze.Checkpoint(tmp_path / "run", every=2, keep=9, wait_for="external"),
    )
    with pytest.raises(KeyboardInterrupt):
        model.fit(trainings.data(9), verbose=0, shuffle=False, callbacks=[checkpoint, Interrupt()])
    model.fit(trainings.data(3), verbose=0, shuffle=False, callbacks=[checkpoint])
    assert [info.step for info in deepfreeze.checkpoints(tmp_path / "run")] == [2, 4, 6, 8]


def test_a_forgotten_callback_gives_everything_back(tmp_path):
    def interrupted():
        model = trainings.dense(keras)
        callbacks = [deepfreeze.Checkpoint(tmp_path / "run", every=2, wait_for="external"), Interrupt()]
        with contextlib.suppress(KeyboardInterrupt):
            model.fit(trainings.data(9), verbose=0, shuffle=False, callbacks=callbacks)
        return weakref.ref(callbacks[0])

    forgotten = interrupted()
    gc.collect()
    assert forgotten() is None
    model = trainings.dense(keras)
    checkpoint = deepfreeze.Checkpoint(tmp_path / "run", every=2)
    assert checkpoint.open(model) == 4
    checkpoint.close()


def test_a_forgotten_dead_training_gives_back_all_that_it_took(tmp_path):
    """The model lives on, and so does the process: nobody calls anything of the training's any more. The captures stay in the
    model's graph, and capture nothing."""
    model, seen = trainings.dense(keras), []

    def taken():
        """The signal's handler, and whether the run is locked."""
        try:
            Lock.acquire(tmp_path / "run").release()
        except deepfreeze.LockedError:
            return signal.getsignal(signal.SIGTERM), True
        return signal.getsignal(signal.SIGTERM), False

    class Die(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 2:
                seen.append(taken())
                raise RuntimeError("this training dies")

    def dead():
        checkpoint = deepfreeze.Checkpoint(tmp_path / "run", every=2, wait_for="external")
        with pytest.raises(RuntimeError, match="this training dies"):
            model.fit(trainings.data(9), verbose=0, shuffle=False, callbacks=[checkpoint, Die()])
        return weakref.ref(checkpoint)

    handler = signal.getsignal(signal.SIGTERM)
    forgotten = dead()
    gc.collect()
    assert forgotten() is None
    ((heard_by, locked),) = seen
    assert heard_by != handler and locked, "both were taken"
    assert taken() == (handler, False)
    newest = deepfreeze.latest(tmp_path / "run").step
    model.fit(trainings.data(5), verbose=0, shuffle=False)
    assert deepfreeze.latest(tmp_path / "run").step == newest


def test_a_lock_held_by_another_thread_says_how_to_free_it(tmp_path):
    held, opened, over = deepfreeze.Checkpoint(tmp_path / "run"), threading.Event(), threading.Event()

    def hold():
        held.open(trainings.dense(keras))
        opened.set()
        over.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    assert opened.wait(60)
    try:
        with pytest.raises(deepfreeze.LockedError, match=r"close\(\) on the Checkpoint"):
            deepfreeze.Checkpoint(tmp_path / "run").open(trainings.dense(keras))
    finally:
        over.set()
        thread.join()
        held.close()


def test_a_second_fit_goes_on_from_the_model_as_it_is(tmp_path):
    model, checkpoint = trainings.dense(keras), deepfreeze.Checkpoint(tmp_path / "run", every=4, final=False)
    model.fit(trainings.data(7), verbose=0, shuffle=False, callbacks=[checkpoint])
    model.optimizer.learning_rate = 1e-5
    model.fit(trainings.data(1), verbose=0, shuffle=False, callbacks=[checkpoint])
    assert int(model.optimizer.iterations.numpy()) == 8
    assert float(model.optimizer.learning_rate.numpy()) == pytest.approx(1e-5)


def test_the_buffers_of_a_finished_fit_are_freed(tmp_path):
    from deepfreeze.frameworks.tensorflow.capture import TensorFlowCapture

    model, checkpoint = trainings.dense(keras), deepfreeze.Checkpoint(tmp_path / "run", every=2)
    for _ in range(3):
        model.fit(trainings.data(2), verbose=0, shuffle=False, callbacks=[checkpoint])
    gc.collect()
    captures = [thing for thing in gc.get_objects() if isinstance(thing, TensorFlowCapture)]
    assert sum(capture.state.model is model for capture in captures) <= 1


def test_an_uncompiled_model_restores_the_weights_of_a_full_checkpoint(tmp_path):
    model = trainings.dense(keras)
    model.fit(trainings.data(2), verbose=0, shuffle=False, callbacks=[deepfreeze.Checkpoint(tmp_path / "run", every=2)])
    bare = keras.Sequential([keras.Input((6,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(1)])
    deepfreeze.restore(bare, tmp_path / "run")
    assert all(np.array_equal(a, b) for a, b in zip(bare.get_weights(), model.get_weights(), strict=True))


@kerases.needs_keras_3
def test_a_distributed_optimizer_inside_a_loss_scale_is_refused():
    inner = deepfreeze.DistributedOptimizer(keras.optimizers.Adam())
    model = trainings.dense(keras, keras.optimizers.LossScaleOptimizer(inner))
    with pytest.raises(deepfreeze.UnsupportedError, match="the other way round"):
        deepfreeze.Checkpoint("unused").open(model)
