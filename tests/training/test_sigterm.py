"""Signals in a training of one rank: the step at hand is committed and training ends, unless the signal is to be left alone."""

import json
import signal

import pytest
import tensorflow as tf

import deepfreeze
from tests.support import jobs, trainings

pytestmark = pytest.mark.tensorflow


@pytest.fixture(autouse=True)
def heard():
    """Signals that came to a handler of the user's own, which is there again afterwards."""
    numbers = []

    def own(number, frame):
        numbers.append(number)

    before = signal.signal(signal.SIGTERM, own)
    yield numbers
    assert signal.getsignal(signal.SIGTERM) is own
    signal.signal(signal.SIGTERM, before)


def signal_at(keras, step):
    """A callback."""

    class Signal(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if trainings.count(self.model.optimizer) == step:
                signal.raise_signal(signal.SIGTERM)

    return Signal()


@pytest.mark.parametrize("steps_per_execution", [1, 4])
def test_the_step_at_hand_is_committed_and_fit_returns(keras, tmp_path, heard, steps_per_execution):
    model = trainings.dense(keras, steps_per_execution=steps_per_execution)
    run, checkpoint = tmp_path / "run", deepfreeze.Checkpoint(tmp_path / "run", every=100)
    callbacks = [trainings.save_weights(keras, tmp_path), signal_at(keras, 8), checkpoint]
    model.fit(trainings.data(20), verbose=0, shuffle=False, epochs=2, callbacks=callbacks)
    assert trainings.count(model.optimizer) == 8 and checkpoint.stats.stopped == "SIGTERM"
    trainings.assert_run_is(run, tmp_path, [8])
    assert sorted(checkpoint.stats.committed) == [8]
    assert heard == []
    model.fit(trainings.data(4), verbose=0, shuffle=False, callbacks=[checkpoint])
    assert checkpoint.stats.stopped is None, "this fit has ended by itself"


def test_a_hand_written_loop_is_told_to_end_when_the_step_is_committed(keras, tmp_path, heard):
    model = trainings.dense(keras)
    with deepfreeze.capture(model.optimizer, model, tmp_path / "run", every=100) as checkpoint:
        for step, (x, y) in enumerate(trainings.data(9), 1):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((model(x) - y) ** 2)
            weights = model.trainable_variables
            model.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
            if step == 4:
                signal.raise_signal(signal.SIGTERM)
            if not checkpoint.step():
                break
        assert step == 4 == deepfreeze.latest(tmp_path / "run").step
    assert checkpoint.stats.stopped == "SIGTERM" and checkpoint.stats.steps == [4] and heard == []


def test_a_signal_that_is_not_in_the_list_does_what_it_did_before(keras, tmp_path, heard):
    model, checkpoint = trainings.dense(keras), deepfreeze.Checkpoint(tmp_path / "run", 100, signals=["SIGUSR1"])
    model.fit(trainings.data(5), verbose=0, shuffle=False, callbacks=[signal_at(keras, 2), checkpoint])
    assert heard == [signal.SIGTERM] and checkpoint.stats.stopped is None
    assert checkpoint.stats.steps == [5] == [info.step for info in deepfreeze.checkpoints(tmp_path / "run")]


def small(run, steps, *options, **environment):
    """What a small training in a process of its own has to say."""
    output = jobs.run("small.py", run, steps, *options, **environment)
    return json.loads(next(line for line in output.splitlines() if line.startswith("{")))


@pytest.mark.full
def test_where_the_store_hangs_the_end_is_bounded_and_the_slots_count(tmp_path, testing_library):
    """Where the store hangs the end is bounded and the next start commits what the local tier has."""
    run, node = tmp_path / "run", tmp_path / "node"
    node.mkdir()
    options = ["every=100", "timeout=3", f'local="{node}"']
    faults = {"DEEPFREEZE_LIBRARY": testing_library, "DEEPFREEZE_FAULT": "delay=600000:pwrite:model.weights.h5:1+"}
    told = small(run, 2000, *options, "sigterm=2", **faults)
    assert (told["stopped"], told["last"]) == ("SIGTERM", 2)
    assert "step 2" in told["error"] and "written to the external store" in told["error"]
    assert 3 <= told["since"] < 30
    assert deepfreeze.latest(run) is None and list(node.rglob("*.slot"))
    told = small(run, 1, *options)
    assert (told["resumed"], told["last"], told["error"]) == (2, 3, None)
    assert deepfreeze.latest(run).step == 3 and not list(node.rglob("*.slot"))
