"""The benchmarks reach into the library to time its parts: they still find there what they time."""

from __future__ import annotations

import horovod.tensorflow as hvd
import keras
import numpy as np
import pytest
import tensorflow as tf

import deepfreeze
from benchmarks import jobs, restore
from benchmarks.agreement_rank import step_function
from benchmarks.paper_approaches import KerasDefault, Timed, VelocSharded, VelocSingle
from benchmarks.paper_largest import Largest
from deepfreeze.frameworks.tensorflow.graph_maximum import TensorFlowMaximum
from deepfreeze.ranks.control_word import ControlWord
from deepfreeze.ranks.world import HorovodWorld, current

pytestmark = pytest.mark.tensorflow

X, Y = np.ones((6, 4), np.float32), np.ones((6, 1), np.float32)
LEVELS = {2: "local", 4: "captured"}


@pytest.fixture
def model():
    made = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8), keras.layers.Dense(1)])
    made.compile(keras.optimizers.Adam(1e-3), "mse")
    return made


def fit(model, *callbacks):
    model.fit(X, Y, batch_size=1, shuffle=False, verbose=0, callbacks=list(callbacks))


def raw(folder):
    places = {name: str(jobs.empty(folder, name)) for name in ("run", "local")}
    return {**places, "run_id": "ab" * 16, "attempt": "cd" * 16}


def test_our_callback_is_timed_at_both_levels(model, tmp_path):
    ours = Timed(tmp_path / "run", LEVELS, local=str(tmp_path))
    fit(model, ours)
    ours.settle()
    assert list(ours.took) == list(LEVELS)
    for preparation, blocking in ours.took.values():
        assert 0 < preparation < blocking


def test_the_papers_slicing_is_captured_and_timed(model, tmp_path):
    largest = Largest([2, 4], 0, 1, raw(tmp_path))
    fit(model, largest)
    assert list(largest.took) == [2, 4] and all(0 < ready < done for ready, done in largest.took.values())


@pytest.mark.parametrize("name", ["keras-default", "veloc-single", "veloc-sharded"])
def test_the_papers_other_approaches_are_timed(model, tmp_path, name):
    fit(model)
    if name == "keras-default":
        saver = KerasDefault(model, 0, tmp_path)
    elif name == "veloc-single":
        saver = VelocSingle(model, 0, raw(tmp_path))
    else:
        saver = VelocSharded(model, 0, 1, raw(tmp_path))
    ready, done = saver.save(2)
    saver.settle()
    saver.close()
    assert done > 0 and (ready is None or 0 < ready < done)
    assert [path for path in tmp_path.rglob("*") if path.is_file() and path.stat().st_size > 100], "it saved something"


def test_a_step_with_the_control_word_trains():
    hvd.init()
    word = ControlWord(current())
    stop = word.field("stop")
    maximum = TensorFlowMaximum(HorovodWorld(hvd), len(word.names))
    word.seal()
    word.connect(maximum)
    weights = [tf.Variable(tf.ones((1024, 1024)) / 1024)]
    before = weights[0].numpy()
    step_function(weights, maximum)()
    assert (weights[0].numpy() != before).any()
    word.meet()
    assert not stop.agreed


def test_the_plain_restore_and_tensorflows_give_a_model_its_values(model, tmp_path):
    """The yardsticks of a restore do all that one does: every tensor of the checkpoint comes back."""
    run = tmp_path / "run"
    fit(model, deepfreeze.Checkpoint(run, every=6))
    by_tensorflow = restore.tensorflow(model, tmp_path)
    file, places = deepfreeze.latest(run).path / "model.weights.h5", restore.placed(model, run)
    for again in (lambda: restore.plain(file, places), by_tensorflow):
        for _, variable in places:
            variable.assign(tf.zeros_like(variable))
        with pytest.raises(SystemExit):
            restore.check(model, run)
        again()
        restore.check(model, run)
