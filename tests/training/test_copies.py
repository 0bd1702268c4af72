"""Copies of a callback, as tools make one for each of their trials (``copy.deepcopy``): options, runs, and what is copied along."""

from __future__ import annotations

import copy
import itertools
import pickle

import numpy as np
import pytest

import deepfreeze
from deepfreeze.data import Resumable, Skipping
from deepfreeze.errors import OptionError
from deepfreeze.plan import Auto
from tests.support import kerases, trainings

pytestmark = pytest.mark.tensorflow


def fit(keras, callbacks, data=None):
    model = trainings.dense(keras)
    model.fit(trainings.data(4) if data is None else data, verbose=0, shuffle=False, callbacks=callbacks)
    return model


@kerases.one_will_do
def test_each_trial_gets_a_copy_with_a_run_and_callbacks_of_its_own(keras, tmp_path):
    """As keras-tuner does it: the callbacks are copied together, for each trial, and the original is never used."""
    numbers = itertools.count()
    stop = keras.callbacks.EarlyStopping(monitor="loss", patience=1)
    own = deepfreeze.Checkpoint(
        lambda: tmp_path / "trials" / str(next(numbers)), every=2, keep=3, verbose=0, extra={"stop": stop}
    )
    for trial in range(3):
        stopping, copied = copy.deepcopy([stop, own])
        assert copied._options.extra["stop"] is stopping is not stop
        fit(keras, [stopping, copied])
        assert copied.stats.steps == [2, 4]
        assert [one.step for one in deepfreeze.checkpoints(tmp_path / "trials" / str(trial))] == [2, 4]
    assert next(numbers) == 3, "each copy asks once, and the original not at all"
    assert not own.stats.steps and getattr(stop, "best", None) is None


@kerases.one_will_do
@pytest.mark.parametrize("family", ["original", pytest.param("copy", marks=pytest.mark.full)])
def test_a_path_serves_one_copy_and_the_second_is_told_the_line(tmp_path, family, keras, monkeypatch):
    monkeypatch.chdir(tmp_path)
    own = deepfreeze.Checkpoint("runs/nt3", every=2, verbose=0)
    copied = copy.deepcopy(own)
    with pytest.raises(OptionError) as caught:
        copy.deepcopy(own if family == "original" else copied)
    assert 'Checkpoint(lambda: f"runs/nt3-{next(numbers)}") with numbers = itertools.count()' in caught.value.todo
    assert str(tmp_path / "runs" / "nt3") in caught.value.found and "run=" in caught.value.expected
    fit(keras, [copied])
    assert copied.stats.steps == [2, 4]


@kerases.one_will_do
@pytest.mark.parametrize("used", ["open", pytest.param("fit", marks=pytest.mark.full)])
def test_a_callback_that_has_trained_is_not_copied(keras, tmp_path, used):
    own = deepfreeze.Checkpoint(lambda: tmp_path / "run", every=2, verbose=0)
    model = fit(keras, [own]) if used == "fit" else trainings.dense(keras)
    if used == "open":
        own.open(model)
    with pytest.raises(
        OptionError, match="a Checkpoint that has trained nothing yet; found one that has opened its run"
    ):
        copy.deepcopy(own)
    own.close()


@pytest.mark.full
@kerases.one_will_do
def test_evaluating_with_a_callback_is_no_use_of_it(keras, tmp_path):
    own = deepfreeze.Checkpoint(tmp_path / "run", verbose=0)
    trainings.dense(keras).evaluate(trainings.data(2), verbose=0, callbacks=[own])
    assert copy.deepcopy(own).stats.steps == []


@kerases.one_will_do
def test_a_copy_learns_and_reads_by_itself(keras, tmp_path):
    """The policy and the data of a copy are copies; what the data are made of is shared."""
    x, y = np.ones((32, trainings.FEATURES), "float32"), np.ones((32, 2), "float32")
    data = Resumable((x, y), batch_size=8, seed=1)
    policy = Auto(overhead=0.2)
    own = deepfreeze.Checkpoint(lambda: tmp_path / "run", every=policy, verbose=0, data=data, metadata={"git": "3f2"})
    copied, read = copy.deepcopy((own, data))
    assert copied._every is not policy and str(copied._every) == str(policy)
    assert copied._options.data is read is not data and read._source is data._source
    assert copied._options.metadata == {"git": "3f2"} and copied._options.keep is own._options.keep
    read.advance(2)
    assert (read.state()["items"], data.state()["items"]) == (16, 0)
    assert [len(batch[0]) for batch in data] == [8] * 4 and [len(batch[0]) for batch in copy.deepcopy(data)] == [8] * 4


@pytest.mark.full
@kerases.one_will_do
def test_skipping_data_are_copied_at_their_place(keras, tmp_path):
    import tensorflow as tf

    data = Skipping(tf.data.Dataset.range(8).batch(2))
    read = copy.deepcopy(data)
    assert [batch.tolist() for batch in read] == [batch.tolist() for batch in data] == [[0, 1], [2, 3], [4, 5], [6, 7]]


@pytest.mark.full
@kerases.one_will_do
def test_a_subclass_is_copied_with_what_it_has_added(keras, tmp_path):
    class Mine(deepfreeze.Checkpoint):
        def __init__(self, name):
            super().__init__(lambda: tmp_path / name, every=2, verbose=0)
            self.notes, self.itself = [name], self

    own = Mine("run")
    copied = copy.deepcopy(own)
    copied.notes.append("copy")
    assert type(copied) is Mine and own.notes == ["run"] and copied.itself is copied
    fit(keras, [copied])
    assert copied.stats.steps == [2, 4] and own.stats.steps == []


@kerases.one_will_do
@pytest.mark.parametrize(
    ("run", "found"),
    [
        (lambda trial: "runs/x", "missing a required argument: 'trial'"),
        (5, "found 5"),
        (lambda: 5, "found 5"),
        (lambda: "", "found ''"),
    ],
    ids=["argument", "number", "returns-number", "returns-nothing"],
)
def test_a_run_that_is_neither_path_nor_function_is_refused(keras, run, found):
    with pytest.raises(OptionError, match=found) as caught:
        deepfreeze.Checkpoint(run, verbose=0).open(trainings.dense(keras))
    assert caught.value.where == "run="


@pytest.mark.full
@kerases.one_will_do
def test_an_exception_of_the_function_is_the_programs_own(keras, tmp_path):
    def run():
        raise KeyError("TRIAL")

    checkpoint = deepfreeze.Checkpoint(run, verbose=0)
    with pytest.raises(KeyError, match="TRIAL"):
        checkpoint.open(trainings.dense(keras))
    with pytest.raises(KeyError, match="TRIAL"):
        fit(keras, [checkpoint])


@pytest.mark.full
@kerases.one_will_do
def test_a_loop_takes_a_function_too(keras, tmp_path):
    model = trainings.dense(keras)
    with deepfreeze.capture(model.optimizer, model, lambda: tmp_path / "loop", verbose=0) as checkpoint:
        assert checkpoint.start == 0
    assert (tmp_path / "loop" / "run.json").exists()


def test_pickling_stays_as_it_is(tmp_path):
    with pytest.raises((TypeError, AttributeError, pickle.PicklingError)):
        pickle.dumps(deepfreeze.Checkpoint(tmp_path / "run"))
