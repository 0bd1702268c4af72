"""What these tests share: a training, and a run that has checkpoints already."""

import keras
import pytest

import deepfreeze
from tests.support import trainings


@pytest.fixture
def train():
    """Trains a model (a new one unless given) with checkpoints; options are Checkpoint's."""

    def train(run, steps=4, model=None, **options):
        checkpoint = deepfreeze.Checkpoint(run, **{"every": 2, **options})
        model = model or trainings.dense(keras)
        model.fit(trainings.data(steps), verbose=0, shuffle=False, callbacks=[checkpoint])
        return checkpoint

    return train


@pytest.fixture
def run(tmp_path, train):
    """A run with the committed checkpoints 2 and 4."""
    train(tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture
def model():
    """A model that was never trained, its optimizer built."""
    made = trainings.dense(keras)
    made.optimizer.build(made.trainable_variables)
    return made
