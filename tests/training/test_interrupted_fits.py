"""A program that goes on after an exception, or calls ``evaluate``, with the same objects: what ``Checkpoint`` holds, and what it has
changed in Keras's callbacks in ``extra=``, belongs to one ``fit``."""

import numpy as np
import pytest

import deepfreeze
from deepfreeze.format import attachment_tree
from deepfreeze.freeze.bound_backend import BoundBackend
from deepfreeze.store import Latest
from deepfreeze.store.run import Run
from deepfreeze.thaw.rank_records import read_records
from tests.support import kerases, trainings

pytestmark = pytest.mark.tensorflow

BATCHES = 3  # in each epoch


class Interrupted(Exception):
    """In place of Ctrl-C."""


@pytest.fixture(autouse=True)
def another_process(monkeypatch):
    """Each test is a process of its own."""
    monkeypatch.setattr("deepfreeze.training.fits._ended", {})


@pytest.fixture
def interrupting(keras):
    """A callback that raises in the method ``at``, when so many ``steps`` are done; None: never."""

    class Interrupting(keras.callbacks.Callback):
        def __init__(self, at=None, steps=0):
            super().__init__()
            self.at, self.steps = at, steps

        def _here(self, name):
            if self.at == name and trainings.count(self.model.optimizer) == self.steps:
                raise Interrupted

        def on_train_begin(self, logs=None):
            self._here("train_begin")

        def on_train_batch_begin(self, batch, logs=None):
            self._here("batch")

        def on_test_begin(self, logs=None):
            self._here("test")

    return Interrupting


def saved(run, step):
    """The states in a checkpoint, by name, and whether they lack the end of its epoch."""
    opened = Run.open(run)
    (record,) = read_records(opened, opened.manifest(step))
    tree = attachment_tree.decode(record.values["attachments"], opened)
    return tree["objects"], attachment_tree.is_epoch_open(tree)


def test_a_step_that_was_held_has_the_states_of_its_own_fit(keras, interrupting, tmp_path):
    """Interrupted in the validation. The next fit of the program sets the callbacks back, and gives the model another history."""
    stop = keras.callbacks.EarlyStopping("val_loss")
    data = deepfreeze.data.Resumable((np.ones((6, 6), "f4"), np.ones((6, 1), "f4")), 2, seed=1)
    checkpoint = deepfreeze.Checkpoint(
        tmp_path / "run", "epoch", keep=Latest(9), extra={"stop": stop}, data=data, verbose=0
    )
    model = trainings.dense(keras)
    beside = interrupting("test", BATCHES * 2)
    fitting = {"validation_data": trainings.data(2), "epochs": 4, "verbose": 0}
    with pytest.raises(Interrupted):
        model.fit(data, callbacks=[stop, beside, checkpoint], **fitting)
    best = stop.best
    beside.at, beside.steps = "batch", BATCHES * 2 + 1
    with pytest.raises(Interrupted):
        model.fit(data, callbacks=[stop, beside, checkpoint], **fitting)
    checkpoint.close()
    states, epoch_open = saved(tmp_path / "run", BATCHES * 2)
    assert states["stop"]["best"] == best is not None and epoch_open
    assert states["deepfreeze/epoch"]["epochs"] == [0]


@kerases.one_will_do
def test_a_close_waits_for_no_level_of_the_held_step(keras, interrupting, tmp_path, monkeypatch):
    """Other ranks may be in the validation still, and this step then has no commit to wait for."""
    waited, wait = [], BoundBackend.wait

    def noted(self, step, level):
        waited.append(step)
        wait(self, step, level)

    monkeypatch.setattr(BoundBackend, "wait", noted)
    checkpoint = deepfreeze.Checkpoint(
        tmp_path / "run", "epoch", wait_for="external", extra={"stop": keras.callbacks.EarlyStopping()}, verbose=0
    )
    callbacks = [interrupting("test", BATCHES * 2), checkpoint]
    with pytest.raises(Interrupted):
        trainings.dense(keras).fit(
            trainings.data(BATCHES), validation_data=trainings.data(2), epochs=3, verbose=0, callbacks=callbacks
        )
    checkpoint.close()
    assert waited == [BATCHES]
    assert [info.step for info in deepfreeze.checkpoints(tmp_path / "run")] == [BATCHES, BATCHES * 2]


@kerases.one_will_do
def test_a_step_that_is_held_takes_room(keras, tmp_path, monkeypatch):
    """The captures are in TensorFlow's memory, and the engine can take one: that is the held one."""
    monkeypatch.setattr(BoundBackend, "room", lambda self: 1)
    checkpoint = deepfreeze.Checkpoint(
        tmp_path / "run",
        2,
        keep=Latest(9),
        extra={"stop": keras.callbacks.EarlyStopping("loss", patience=9)},
        engine=deepfreeze.Engine(when_full="skip"),
        capture=deepfreeze.Capture(path="graph"),
        verbose=0,
    )
    trainings.dense(keras).fit(trainings.data(6), epochs=2, verbose=0, callbacks=[checkpoint])
    assert list(checkpoint.stats.skipped) == [8]
    assert [info.step for info in deepfreeze.checkpoints(tmp_path / "run")] == [2, 4, 6, 10, 12]


def test_evaluate_and_a_fit_that_never_began_leave_a_csv_logger_alone(keras, interrupting, tmp_path):
    log = keras.callbacks.CSVLogger(tmp_path / "log.csv")
    checkpoint = deepfreeze.Checkpoint(tmp_path / "run", "epoch", extra={"log": log}, verbose=0)
    model, data = trainings.dense(keras), trainings.data(BATCHES)

    class Evaluate(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            self.model.evaluate(data, verbose=0, callbacks=[checkpoint])

    model.evaluate(data, verbose=0, callbacks=[checkpoint])
    model.predict(data, verbose=0, callbacks=[checkpoint])
    assert not log.append
    model.fit(data, epochs=2, verbose=0, callbacks=[log, checkpoint, Evaluate()])
    assert not log.append and len((tmp_path / "log.csv").read_text().splitlines()) == 3
    assert [info.step for info in deepfreeze.checkpoints(tmp_path / "run")] == [BATCHES, BATCHES * 2]
    with pytest.raises(Interrupted):
        model.fit(data, verbose=0, callbacks=[log, checkpoint, interrupting("train_begin", BATCHES * 2)])
    checkpoint.close()
    assert not log.append
