"""The policies that DeepFreeze brings, in trainings of one rank: what is captured is what Keras saves at that step."""

import itertools
import signal

import pytest
import tensorflow as tf

import deepfreeze
from deepfreeze.plan import EveryEpoch, EverySeconds, FirstOf, Never, OnSignal
from tests.support import kerases, trainings

pytestmark = pytest.mark.tensorflow


def fit(keras, folder, every, data=None, epochs=3, callbacks=(), compiling=None, **options):
    """A training of 7 batches in each epoch; stock Keras saves each step beside the checkpoints. Returns the callback."""
    model = trainings.dense(keras, **(compiling or {}))
    checkpoint = deepfreeze.Checkpoint(folder / "run", every, **{"final": False, "keep": 100, "verbose": 0, **options})
    saving = trainings.save_weights(keras, folder)
    data = trainings.data(7) if data is None else data
    model.fit(data, epochs=epochs, verbose=0, shuffle=False, callbacks=[saving, *callbacks, checkpoint])
    return checkpoint


def in_graph(monkeypatch):
    """The steps that are captured between two executions, although the graph has captures."""
    from deepfreeze.freeze.saver import Saver

    taken = []
    take = Saver.take
    monkeypatch.setattr(Saver, "take", lambda self: taken.append(True) or take(self))
    return taken


def unknown_size(steps):
    """The same batches in each epoch; Keras learns their number only when they are over."""
    return trainings.data(steps).filter(lambda x, y: True)


class Raise:
    """Raises ``number`` in this process at the end of step ``step``."""

    def __new__(cls, keras, number, step):
        class Signal(keras.callbacks.Callback):
            def on_train_batch_end(self, batch, logs=None):
                if trainings.count(self.model.optimizer) == step:
                    signal.raise_signal(number)

        return Signal()


@kerases.cases([1, 3], both=(1,), name="n")
def test_every_epochs_last_step_is_captured_in_the_graph(keras, tmp_path, monkeypatch, n):
    taken = in_graph(monkeypatch)
    fit(keras, tmp_path, EveryEpoch(n), epochs=4)
    trainings.assert_run_is(tmp_path / "run", tmp_path, [7, 14, 21, 28] if n == 1 else [21])
    assert not taken


@kerases.one_will_do
def test_every_epochs_last_execution_of_several_steps_is_captured(keras, tmp_path):
    """7 steps are two executions, of 4 and of 3."""
    fit(keras, tmp_path, "epoch", compiling={"steps_per_execution": 4})
    trainings.assert_run_is(tmp_path / "run", tmp_path, [7, 14, 21])


@kerases.one_will_do
def test_an_epoch_of_unknown_size_is_captured_when_it_has_ended(keras, tmp_path):
    """Keras counts a step without a batch at the end of such an epoch; Keras 2 knows the size from the second epoch on."""
    fit(keras, tmp_path, "epoch", data=unknown_size(7))
    trainings.assert_run_is(tmp_path / "run", tmp_path, [8, 15, 22] if kerases.is_2(keras) else [8, 16, 24])


@kerases.one_will_do
def test_epochs_are_counted_from_the_first_of_all_after_a_resume(keras, tmp_path):
    """The job is stopped in its third epoch, which begins again at its first batch. The sixth one is cut short by as many batches."""
    fit(keras, tmp_path, EveryEpoch(2), epochs=6, callbacks=[Raise(keras, signal.SIGTERM, 17)])
    assert [info.step for info in deepfreeze.checkpoints(tmp_path / "run")] == [14, 17]
    fit(keras, tmp_path, EveryEpoch(2), epochs=6)
    assert [info.step for info in deepfreeze.checkpoints(tmp_path / "run")] == [14, 17, 31, 42]


@kerases.one_will_do
def test_a_signal_takes_a_checkpoint_and_training_goes_on(keras, tmp_path):
    """The step behind the next execution is captured: step 3 is followed by step 4, whose execution has begun when it is agreed on."""
    before = signal.getsignal(signal.SIGUSR1)
    checkpoint = fit(keras, tmp_path, OnSignal(signal.SIGUSR1), callbacks=[Raise(keras, signal.SIGUSR1, 3)])
    trainings.assert_run_is(tmp_path / "run", tmp_path, [5])
    assert checkpoint.stats.stopped is None and signal.getsignal(signal.SIGUSR1) is before


@kerases.one_will_do
def test_seconds_take_a_checkpoint_when_they_have_passed(keras, tmp_path):
    """A nanosecond has passed after each execution that captures nothing; the step behind the next execution is captured."""
    fit(keras, tmp_path, EverySeconds(1e-9), epochs=1)
    found = [info.step for info in deepfreeze.checkpoints(tmp_path / "run")]
    trainings.assert_run_is(tmp_path / "run", tmp_path, found)
    assert found[0] == 3 and all(later - earlier == 3 for earlier, later in itertools.pairwise(found))
    (tmp_path / "never").mkdir()
    fit(keras, tmp_path / "never", EverySeconds(1e6), epochs=1)
    assert deepfreeze.checkpoints(tmp_path / "never" / "run") == []


@kerases.one_will_do
def test_first_of_takes_what_each_part_asks_for(keras, tmp_path):
    every = FirstOf(Never(), 5, FirstOf("epoch", OnSignal("SIGUSR1")))
    fit(keras, tmp_path, every, epochs=2, callbacks=[Raise(keras, signal.SIGUSR1, 10)])
    trainings.assert_run_is(tmp_path / "run", tmp_path, [5, 7, 10, 12, 14])


def test_never_saves_the_last_step_alone(keras, tmp_path):
    fit(keras, tmp_path, Never(), epochs=1, final=True)
    trainings.assert_run_is(tmp_path / "run", tmp_path, [7])


def loop(keras, folder, every, steps=8, number=None):
    """A hand-written loop; the signal comes in step 3. Returns the steps that are saved."""
    model = trainings.dense(keras)
    with deepfreeze.capture(model.optimizer, model, folder, every, final=False, keep=100) as checkpoint:
        for step, (x, y) in enumerate(trainings.data(steps), 1):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((model(x) - y) ** 2)
            weights = model.trainable_variables
            model.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
            if step == 3 and number:
                signal.raise_signal(number)
            checkpoint.step()
    return checkpoint.stats.steps


def test_a_hand_written_loop_hears_a_signal_too(keras, tmp_path):
    assert loop(keras, tmp_path / "run", OnSignal("SIGUSR1"), number=signal.SIGUSR1) == [5]


@pytest.mark.parametrize("every", ["epoch", FirstOf(10, EveryEpoch(2))], ids=["word", "part"])
def test_a_hand_written_loop_has_no_epochs(keras, tmp_path, every):
    with pytest.raises(deepfreeze.OptionError, match="every=: expected a policy that needs no epochs: a hand-written"):
        loop(keras, tmp_path / "run", every)
    assert not (tmp_path / "run").exists()


def test_a_signal_has_one_meaning(tmp_path):
    with pytest.raises(deepfreeze.OptionError, match=r"signals=: expected .*; found SIGTERM in signals= and in every="):
        deepfreeze.Checkpoint(tmp_path / "run", OnSignal("SIGTERM"))
    deepfreeze.Checkpoint(tmp_path / "run", OnSignal("SIGTERM"), signals=())


def test_a_policy_that_fails_at_an_epochs_end_is_named(keras, tmp_path):
    class Mine(EveryEpoch):
        def epoch_ends(self, epoch, step):
            if epoch == 2:
                raise ValueError("no idea")

    with pytest.raises(deepfreeze.OptionError, match=r"found Mine.epoch_ends\(2, 14\): ValueError: no idea. Mend the"):
        fit(keras, tmp_path, Mine())
