"""``Checkpoint(data=...)`` where a batch is no update: gradients are accumulated, or a loss scale skips updates. And over ``grain``.

A ``fit`` that an exception ends is, for the next ``Checkpoint``, as one whose process was killed.
"""

import functools
import importlib
import signal

import numpy as np
import pytest

import deepfreeze
from deepfreeze.data import Resumable
from deepfreeze.state.keras_objects import optimizer_variables
from tests.support import jobs, kerases, trainings

pytestmark = pytest.mark.tensorflow

ITEMS, BATCH, BATCHES, EPOCHS = 27, 4, 7, 3
ALL = [(epoch, batch) for epoch in range(EPOCHS) for batch in range(BATCHES)]
KILLS = [4, 8, 9, 16, 20]  # batches: in each epoch, and on all places between two updates
TOLD = [4, 7, 11, 16]  # training ends one batch later: not with the last batch of an epoch


class Killed(Exception):
    """In place of a kill."""


@pytest.fixture(autouse=True)
def another_process(monkeypatch):
    """Each fit of a test is the first one of its process."""
    monkeypatch.setattr("deepfreeze.process_state.PROCESS.ended_fits", {})


def rows():
    """(x, y): the first column of x is the item's number."""
    rng = np.random.default_rng(0)
    x = rng.random((ITEMS, trainings.FEATURES), np.float32)
    x[:, 0] = np.arange(ITEMS)
    return x, 10 * rng.random((ITEMS, 1), np.float32)


class Program:
    """A program with one ``fit`` in the folder of a run, started anew by each call."""

    def __init__(self, keras, run, optimizer, source=None):
        self.keras, self.run, self.optimizer, self.source = keras, run, optimizer, source or rows
        self.seen = {}  # (epoch, batch): the items' numbers, as trained last
        self.updates, self.scales = [], []  # the count of updates and the loss scale after each batch

    def __call__(self, kill=None, how=Killed):
        """Trains to the end, or until so many batches of all epochs are trained. Returns the first batch that was trained."""
        import tensorflow as tf

        trained, program = [], self

        class Noting(self.keras.Sequential):
            def train_step(self, batch):
                tf.py_function(lambda x: trained.append(x.numpy()[:, 0].astype(int).tolist()), [batch[0]], [])
                return super().train_step(batch)

        class Beside(self.keras.callbacks.Callback):
            began, epoch = None, 0

            def on_epoch_begin(self, epoch, logs=None):
                self.epoch = epoch

            def on_train_batch_end(self, batch, logs=None):
                self.began = self.began or (self.epoch, batch)
                program.seen[self.epoch, batch] = trained[-1]
                optimizer = self.model.optimizer
                program.updates.append(trainings.count(optimizer))
                program.scales.append(float(getattr(optimizer, "dynamic_scale", getattr(optimizer, "loss_scale", 1))))
                if self.epoch * BATCHES + batch + 1 == kill:
                    if how is Killed:
                        raise Killed
                    signal.raise_signal(how)

        data, beside = Resumable(self.source(), batch_size=BATCH, seed=5), Beside()
        self.model = trainings.dense(self.keras, self.optimizer(self.keras), cls=Noting, metrics=["mae"])
        self.checkpoint = deepfreeze.Checkpoint(self.run, every=1, keep=100, data=data, verbose=0)
        try:
            self.history = self.model.fit(data, epochs=EPOCHS, verbose=0, callbacks=[self.checkpoint, beside])
        except Killed:
            self.checkpoint.close()
        return beside.began

    def end(self):
        """What training has come to: the history, and all values as bytes."""
        logs = {name: list(map(float, row)) for name, row in self.history.history.items() if "deepfreeze" not in name}
        variables = [*self.model.weights, *optimizer_variables(self.model.optimizer)]
        return self.history.epoch, logs, [np.array(variable.numpy()).tobytes() for variable in variables]


def accumulating(keras, batches=3):
    return keras.optimizers.Adam(0.01, gradient_accumulation_steps=batches)


def scaled(keras):
    """Scales the loss so much that many updates overflow: the first ones, and often one after four others, which doubles the scale."""
    place = keras.mixed_precision if kerases.is_2(keras) else keras.optimizers
    return place.LossScaleOptimizer(keras.optimizers.Adam(0.01), initial_scale=2.0**124, dynamic_growth_steps=4)


def assert_goes_on(keras, folder, optimizer, how, ends=None, source=None):
    """A training that ends after each of so many batches comes to what one without interruptions comes to. Returns the latter."""
    whole = Program(keras, folder / "whole", optimizer, source)
    assert whole() == (0, 0) and [*whole.seen] == ALL
    for epoch in range(EPOCHS):
        trained = [item for batch in range(BATCHES) for item in whole.seen[epoch, batch]]
        assert sorted(trained) == [*range(ITEMS)], "each item once"
    program = Program(keras, folder / "run", optimizer, source)
    for kill in ends or (KILLS if how is Killed else TOLD):
        program(kill, how)
    began = program()
    assert began is not None and began > (0, 0)
    assert program.seen == whole.seen and program.end() == whole.end()
    return whole


@pytest.mark.full
@kerases.needs_keras_3
@pytest.mark.parametrize("how", [Killed, signal.SIGTERM], ids=["killed", "told"])
def test_a_training_that_accumulates_goes_on_with_the_right_batch(tmp_path, how):
    """Three batches for an update, seven in an epoch: sums of gradients reach over an epoch's end."""
    whole = assert_goes_on(importlib.import_module("keras"), tmp_path, accumulating, how)
    assert whole.updates[:7] == [0, 0, 1, 1, 1, 2, 2] and len(whole.updates) == BATCHES * EPOCHS


@pytest.mark.full
@pytest.mark.parametrize("how", [Killed, signal.SIGTERM], ids=["killed", "told"])
def test_a_training_whose_updates_are_skipped_goes_on_with_the_right_batch(keras, tmp_path, how):
    whole = assert_goes_on(keras, tmp_path, scaled, how)
    skipped = [number for number in range(1, BATCHES * EPOCHS) if whole.scales[number] < whole.scales[number - 1]]
    assert len(skipped) >= 3 and skipped[-1] >= BATCHES, whole.scales


@pytest.mark.full
@kerases.needs_keras_3
@pytest.mark.parametrize(
    "optimizer", [functools.partial(accumulating, batches=2), scaled], ids=["accumulated", "skipped"]
)
def test_a_job_told_to_stop_at_an_epochs_end_goes_on_to_an_update(tmp_path, optimizer):
    """The ranks agree to end at the last batch of an epoch. The next batch is no update, so its checkpoint could not have the epoch's
    end: training ends with the update after it."""
    assert_goes_on(importlib.import_module("keras"), tmp_path, optimizer, signal.SIGTERM, ends=[6, 13])


@pytest.mark.full
@pytest.mark.skipif(not jobs.installed("grain"), reason="the package grain is not installed")
def test_a_grain_dataset_goes_on_inside_of_an_epoch(keras, tmp_path):
    import grain

    def dataset():
        x, y = rows()
        return grain.MapDataset.source(range(ITEMS)).map(lambda number: (x[number], y[number]))

    whole = assert_goes_on(keras, tmp_path, lambda keras: keras.optimizers.Adam(0.01), Killed, source=dataset)
    arrays = Program(keras, tmp_path / "arrays", whole.optimizer)
    arrays()
    assert arrays.seen == whole.seen and arrays.end() == whole.end(), "as over the same arrays"
