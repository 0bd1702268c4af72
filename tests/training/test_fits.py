"""Whatever fit is given and however often it is called, each checkpoint is what Keras would have saved after that step."""

import contextlib
import importlib
import json
import shutil
import signal
import subprocess
import time

import pytest

import deepfreeze
from deepfreeze.inspect.verify import verify
from tests.support import hand_made, jobs, kerases, trainings
from tests.support.inputs import INPUTS, of_unknown_size

pytestmark = pytest.mark.tensorflow


# The second Keras counts otherwise where data end by themselves, and has an input of its own.
@kerases.cases(INPUTS, both=("ends",), often=("numpy", "unknown"))
def test_every_kind_of_input_trains_and_is_saved(keras, name, tmp_path):
    count, fitting = INPUTS[name]
    steps = trainings.assert_as_keras_saves_it(keras, lambda: trainings.dense(keras), tmp_path, **fitting(keras))
    count = count if isinstance(count, int) else count[kerases.is_2(keras)]
    assert steps == list(range(1, count + 1))


@pytest.mark.parametrize("capture", ["auto", pytest.param("graph", marks=pytest.mark.full)])
def test_a_due_step_that_keras_counts_without_a_batch_is_saved(keras, capture, tmp_path):
    """A due step that Keras counts without a batch is saved, and training goes on."""

    def make():
        return trainings.dense(keras)

    fitting = {"epochs": 3, "verbose": 0}
    trainings.train_undisturbed(keras, make, tmp_path, of_unknown_size(), **fitting)
    checkpoint = deepfreeze.Checkpoint(tmp_path / "run", every=4, keep=9, capture=deepfreeze.Capture(path=capture))
    trainings.alike(keras, make).fit(of_unknown_size(), callbacks=[checkpoint], **fitting)
    trainings.assert_run_is(tmp_path / "run", tmp_path, [4, 8, 10] if kerases.is_2(keras) else [4, 8, 12])


@kerases.one_will_do
def test_class_weights_train_and_are_saved(keras, tmp_path):
    trainings.assert_as_keras_saves_it(
        keras,
        lambda: hand_made.classifier(keras),
        tmp_path,
        trainings.data(5, classes=3),
        class_weight={0: 1.0, 1: 2.0, 2: 0.5},
    )


def test_an_eager_training_is_saved(keras, tmp_path):
    trainings.assert_as_keras_saves_it(keras, lambda: trainings.dense(keras, run_eagerly=True), tmp_path)


@kerases.one_will_do
def test_a_third_fit_with_the_same_callback_goes_on(keras, tmp_path):
    def fits(callback):
        model = trainings.dense(keras)
        for _ in range(3):
            model.fit(trainings.data(3), verbose=0, shuffle=False, callbacks=[callback])

    fits(trainings.save_weights(keras, tmp_path))
    fits(deepfreeze.Checkpoint(tmp_path / "run", every=2, keep=9))
    trainings.assert_run_is(tmp_path / "run", tmp_path, [2, 3, 4, 6, 8, 9])


@kerases.one_will_do
def test_fit_in_a_loop_of_epochs_is_one_training(keras, tmp_path):
    def fits(callback):
        model, fitting = trainings.dense(keras), {"verbose": 0, "shuffle": False, "callbacks": [callback]}
        for epoch in range(4):
            model.fit(trainings.data(3), initial_epoch=epoch, epochs=epoch + 1, **fitting)

    fits(trainings.save_weights(keras, tmp_path))
    fits(deepfreeze.Checkpoint(tmp_path / "run", every=5, keep=9, final=False))
    trainings.assert_run_is(tmp_path / "run", tmp_path, [5, 10])


@kerases.one_will_do
def test_an_older_step_restored_between_fits_is_trained_and_saved_anew(keras, tmp_path):
    def fits(first, second, restore):
        model = trainings.dense(keras)
        model.fit(trainings.data(5), verbose=0, shuffle=False, callbacks=[first])
        restore(model)
        model.fit(trainings.data(5).skip(2), verbose=0, shuffle=False, callbacks=[second])

    folders = [tmp_path / name for name in ("first", "second")]
    for folder in folders:
        folder.mkdir()
    stock = [trainings.save_weights(keras, folder) for folder in folders]
    fits(*stock, lambda model: model.load_weights(folders[0] / "2.weights.h5"))
    shutil.copy(folders[0] / "2.weights.h5", folders[1])
    checkpoint = deepfreeze.Checkpoint(tmp_path / "run", every=2, keep=9)
    fits(checkpoint, checkpoint, lambda model: deepfreeze.restore(model, tmp_path / "run", step=2))
    assert checkpoint.stats.steps == [2, 4, 5, 4, 5]
    trainings.assert_run_is(tmp_path / "run", folders[1], [2, 4, 5])


@kerases.one_will_do
def test_a_model_compiled_or_restored_anew_after_open_counts_as_it_is_then(keras, tmp_path):
    run = tmp_path / "run"
    train = {"verbose": 0, "shuffle": False}
    trainings.dense(keras).fit(trainings.data(5), **train, callbacks=[deepfreeze.Checkpoint(run, every=2, keep=9)])

    model, checkpoint = trainings.dense(keras), deepfreeze.Checkpoint(run, every=2, keep=9)
    assert checkpoint.open(model) == 5
    deepfreeze.restore(model, run, step=2)
    model.fit(trainings.data(1), **train, callbacks=[checkpoint])
    assert [info.step for info in deepfreeze.checkpoints(run)] == [2, 3]

    model, checkpoint = trainings.dense(keras), deepfreeze.Checkpoint(run, every=2, keep=9)
    assert checkpoint.open(model) == 3
    model.compile(keras.optimizers.Adam(), "mse", jit_compile=False)
    deepfreeze.restore(model, run, step=2)
    model.fit(trainings.data(2), **train, callbacks=[checkpoint])
    assert [info.step for info in deepfreeze.checkpoints(run)] == [2, 4]


@kerases.one_will_do
def test_one_callback_takes_one_model_after_the_other(keras, tmp_path):
    checkpoint = deepfreeze.Checkpoint(tmp_path / "run", every=2, resume="off")
    for _ in range(2):
        trainings.dense(keras).fit(trainings.data(3), verbose=0, shuffle=False, callbacks=[checkpoint])
    assert [info.step for info in deepfreeze.checkpoints(tmp_path / "run")] == [2, 3]


def test_evaluation_and_prediction_with_the_callback_do_nothing(keras, tmp_path):
    model, checkpoint = trainings.dense(keras), deepfreeze.Checkpoint(tmp_path / "run")
    model.evaluate(trainings.data(2), verbose=0, callbacks=[checkpoint])
    model.predict(trainings.data(2), verbose=0, callbacks=[checkpoint])
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("kind", [RuntimeError, KeyboardInterrupt])
@kerases.one_will_do
def test_what_was_captured_before_an_exception_is_committed(keras, kind, tmp_path):
    class Fail(keras.callbacks.Callback):
        """Raises in the fifth batch."""

        def on_train_batch_begin(self, batch, logs=None):
            if batch == 4:
                raise kind("the user's own")

    checkpoint = deepfreeze.Checkpoint(tmp_path / "run", every=2, keep=9)
    for callback in (trainings.save_weights(keras, tmp_path), checkpoint):
        with pytest.raises(kind, match="own"):
            trainings.dense(keras).fit(trainings.data(8), verbose=0, shuffle=False, callbacks=[callback, Fail()])
    checkpoint.close()
    again = deepfreeze.Checkpoint(tmp_path / "run", every=2, keep=9)
    assert again.open(trainings.dense(keras)) == 4
    again.close()
    trainings.assert_run_is(tmp_path / "run", tmp_path, [2, 4])


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.timing
def test_after_a_real_interrupt_what_was_captured_is_committed(tmp_path):
    """Ctrl-C reaches Python between two operations, wherever training is then."""
    run = tmp_path / "run"
    with jobs.job("endless.py", run, 3) as job:
        job.until(lambda: list(run.glob("step-*/manifest.json")))
        end = time.monotonic() + jobs.LIMIT_S
        while job.poll() is None and time.monotonic() < end:
            job.process.send_signal(signal.SIGINT)  # again: where Python can't raise, it only says so
            with contextlib.suppress(subprocess.TimeoutExpired):
                job.process.wait(2)
        output = job.output()
        assert job.poll() not in (None, 0, -signal.SIGKILL) and "KeyboardInterrupt" in output
    captured = json.loads(next(line for line in output.splitlines() if line.startswith("captured: "))[10:])
    again = deepfreeze.Checkpoint(run, every=3)
    resumed = again.open(trainings.dense(importlib.import_module("keras")))
    again.close()
    assert resumed >= captured[-1] >= 3 and verify(run, resumed).ok
