"""The weights of an earlier checkpoint, for a model that has gone on from a later one."""

import numpy as np
import pytest

import deepfreeze
from deepfreeze.errors import StructureError
from deepfreeze.store import Best, Latest
from deepfreeze.thaw import past
from tests.support import kerases, trainings

pytestmark = pytest.mark.tensorflow


def trained(keras, run, **options):
    """A model after 4 epochs of 2 batches, and its weights at the end of each."""
    weights = []

    class Note(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            weights.append(self.model.get_weights())
            logs["score"] = [3.0, 1.0, 1.0, 2.0][epoch]

    layers = keras.layers
    keras.utils.set_random_seed(1)
    stack = [layers.Dense(8), layers.BatchNormalization(), layers.Dropout(0.2), layers.Dense(1)]
    model = keras.Sequential([keras.Input((trainings.FEATURES,)), *stack])
    model.compile("adam", "mse", metrics=["mae"], jit_compile=False)
    checkpoint = deepfreeze.Checkpoint(run, "epoch", verbose=0, **options)
    model.fit(trainings.data(2), epochs=4, verbose=0, shuffle=False, callbacks=[Note(), checkpoint])
    return model, weights


def test_they_are_those_of_the_step_and_the_model_stays(keras, tmp_path):
    model, weights = trained(keras, tmp_path / "run", keep=9)
    for number, expected in enumerate(weights, 1):
        found = past.weights(model, tmp_path / "run", 2 * number)
        assert len(found) == len(expected) == 8 and all(map(np.array_equal, found, expected))
    assert all(map(np.array_equal, model.get_weights(), weights[-1]))
    with pytest.raises(StructureError):
        past.weights(trainings.dense(keras), tmp_path / "run", 2)


@kerases.one_will_do
def test_where_the_step_is_gone_it_is_the_one_that_the_rule_keeps(keras, tmp_path):
    rule = Best("score", "min")
    trained(keras, tmp_path / "run", keep=Latest(1) | rule)
    assert [info.step for info in deepfreeze.checkpoints(tmp_path / "run")] == [4, 8], (
        "of equal ones the older is better"
    )
    assert [past.kept(tmp_path / "run", step, rule) for step in (2, 4, 6, 8)] == [4, 4, 4, 8]
    assert past.kept(tmp_path / "run", 2, Best("other", "min")) is None
