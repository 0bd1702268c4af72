"""A program that goes on after an exception, or calls ``evaluate``, with the same objects: what ``Checkpoint`` holds, and what it has
changed in Keras's callbacks in ``extra=``, belongs to one ``fit``."""

import numpy as np
import pytest

import deepfreeze
from deepfreeze.engine.open_engine import OpenEngine
from deepfreeze.format import attachment_tree
from deepfreeze.state.keras_objects import optimizer_variables
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
    monkeypatch.setattr("deepfreeze.process_state.PROCESS.ended_fits", {})


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
    waited, wait = [], OpenEngine.wait

    def noted(self, step, level):
        waited.append(step)
        wait(self, step, level)

    monkeypatch.setattr(OpenEngine, "wait", noted)
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
    monkeypatch.setattr(OpenEngine, "room", lambda self: 1)
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


EPOCHS, ITEMS, SIZE = 3, 23, 4  # the epoch has six batches, the last one is smaller


def items():
    rng = np.random.default_rng(0)
    return rng.random((ITEMS, trainings.FEATURES), np.float32), rng.random((ITEMS, 1), np.float32)


class Program:
    """A notebook: its objects stay, and the cell with ``fit`` is run until nothing raises. ``batches``: the (epoch, batch) of each that was
    trained to its end; ``places``: (hook, whether our callback comes first, the number of updates) at which Ctrl-C comes."""

    def __init__(self, keras, run, places=(), optimizer=None, stop=None, fitting=None, **compiling):
        program, self.batches, self.places = self, [], list(places)

        class Beside(keras.callbacks.Callback):
            def __init__(self, first):
                super().__init__()
                self.first = first

            def here(self, hook):
                place = (hook, self.first, trainings.count(self.model.optimizer))
                if place in program.places:
                    program.places.remove(place)
                    raise KeyboardInterrupt

            def on_epoch_begin(self, epoch, logs=None):
                self.epoch = epoch
                self.here("epoch_begin")

            def on_train_batch_begin(self, batch, logs=None):
                self.here("batch_begin")

            def on_train_batch_end(self, batch, logs=None):
                if not self.first:
                    program.batches.append((self.epoch, batch))
                self.here("batch_end")

            def on_test_begin(self, logs=None):
                self.here("test")

            def on_epoch_end(self, epoch, logs=None):
                self.here("epoch_end")

        data = deepfreeze.data.Resumable(items(), batch_size=SIZE, seed=5)
        self.model = trainings.dense(keras, optimizer or keras.optimizers.Adam(0.01), metrics=["mae"], **compiling)
        extra = {} if stop is None else {"stop": stop}
        self.checkpoint = deepfreeze.Checkpoint(run, 4, keep=Latest(99), data=data, extra=extra, verbose=0)
        callbacks = [Beside(False), *extra.values(), self.checkpoint, Beside(True)]
        self.interrupted = 0
        while True:
            try:
                self.history = self.model.fit(data, epochs=EPOCHS, verbose=0, callbacks=callbacks, **(fitting or {}))
                return
            except KeyboardInterrupt:
                self.interrupted += 1

    def values(self):
        return [np.asarray(v).tobytes() for v in [*self.model.weights, *optimizer_variables(self.model.optimizer)]]


def assert_same(found, expected, batches=True):
    assert found.history.epoch == expected.history.epoch
    for name, row in expected.history.history.items():
        if "deepfreeze" not in name:
            np.testing.assert_array_equal(found.history.history[name], row, name)
    assert found.values() == expected.values()
    if batches:
        assert found.batches == expected.batches


CTRL_C = {
    "before a batch": [("batch_begin", False, 8)],
    "before the callback heard of the batch": [("batch_end", False, 8)],
    "behind the callback": [("batch_end", True, 8)],
    "at the step of a checkpoint": [("batch_end", True, 4)],
    "in the first batch": [("batch_end", False, 1)],
    "at an epoch's begin": [("epoch_begin", False, 6)],
    "at an epoch's last batch": [("batch_end", False, 12)],
    "again and again": [("batch_end", i % 2 == 0, i) for i in range(1, 17, 2)],
}


@kerases.cases(CTRL_C, often=["before the callback heard of the batch"], name="place")
def test_a_fit_of_the_same_objects_goes_on_with_the_next_batch(keras, tmp_path, place):
    whole = Program(keras, tmp_path / "whole")
    found = Program(keras, tmp_path / "run", CTRL_C[place])
    assert found.interrupted == len(CTRL_C[place]) and not found.places
    if place == "at an epoch's last batch":
        # Nobody has seen the epoch's end: its logs are lost, and its weights are not.
        assert found.history.epoch == [0, 2] and found.values() == whole.values()
        return
    assert_same(found, whole)
    steps = [info.step for info in deepfreeze.checkpoints(tmp_path / "run")]
    # The train function had captured step 8 when Ctrl-C came, and nobody was told.
    assert steps == [
        step for step in (4, 8, 12, 16, 18) if (step, place) != (8, "before the callback heard of the batch")
    ]


@pytest.mark.full
@pytest.mark.parametrize("place", [("batch_end", False, 8), ("batch_end", True, 8), ("batch_begin", False, 10)])
def test_executions_of_several_batches_go_on_behind_the_last_one(keras, tmp_path, place):
    whole = Program(keras, tmp_path / "whole", steps_per_execution=2)
    found = Program(keras, tmp_path / "run", [place], steps_per_execution=2)
    assert found.interrupted == 1
    assert_same(found, whole)


@pytest.mark.full
@kerases.needs_keras_3
@pytest.mark.parametrize("first", [False, True])
def test_accumulated_gradients_go_on_with_the_next_batch(tmp_path, first):
    import keras

    def run(folder, *places):
        optimizer = keras.optimizers.Adam(0.01, gradient_accumulation_steps=3)
        return Program(keras, tmp_path / folder, places, optimizer)

    whole, found = run("whole"), run("run", ("batch_end", first, 0), ("batch_end", first, 1))
    assert found.interrupted == 2
    assert_same(found, whole)


@pytest.mark.full
def test_callbacks_in_extra_go_on_too_with_the_weights_that_were_the_best(keras, tmp_path):
    def run(folder, *places):
        stop = keras.callbacks.EarlyStopping("loss", patience=1, min_delta=10.0, baseline=0.0)
        return Program(keras, tmp_path / folder, places, stop=stop)

    whole, found = run("whole"), run("run", ("batch_end", True, 8))
    assert found.interrupted == 1 and len(whole.history.epoch) < EPOCHS
    assert_same(found, whole)


@pytest.mark.full
def test_another_model_after_an_interruption_does_not_go_on_there(keras, tmp_path):
    """Nor does a model that was set to another step."""
    found = Program(keras, tmp_path / "run")
    data = deepfreeze.data.Resumable(items(), batch_size=SIZE, seed=5)
    checkpoint = deepfreeze.Checkpoint(tmp_path / "other", 4, data=data, verbose=0)
    model, trained = trainings.dense(keras, keras.optimizers.Adam(0.01), metrics=["mae"]), []

    class Interrupt(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            trained.append(batch)
            if len(trained) == 5:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model.fit(data, epochs=1, verbose=0, callbacks=[checkpoint, Interrupt()])
    model.optimizer.iterations.assign(7)
    model.fit(data, epochs=1, verbose=0, callbacks=[checkpoint, Interrupt()])
    assert trained == [0, 1, 2, 3, 4, *range(len(data))]
    assert found.interrupted == 0
