"""What these tests share: a training, and a run that has checkpoints already."""

import shutil

import keras
import pytest

import deepfreeze
from tests.support import trainings
from tests.support.options import grouped


def train_in(run, steps=4, model=None, **options):
    """Trains a model (a new one unless given) with checkpoints; options are Checkpoint's."""
    checkpoint = deepfreeze.Checkpoint(run, **{"every": 2, **grouped(options)})
    model = model or trainings.dense(keras)
    model.fit(trainings.data(steps), verbose=0, shuffle=False, callbacks=[checkpoint])
    return checkpoint


@pytest.fixture
def train():
    """``train_in``."""
    return train_in


@pytest.fixture
def save():
    """Saves a model in steps 2 and 4, or beyond them, where nothing hangs on how it is trained: as a loop of the user's own."""

    def save(run, steps=4, model=None):
        model = model or trainings.dense(keras)
        model.optimizer.build(model.trainable_variables)
        with deepfreeze.capture(model.optimizer, model, run, every=2) as checkpoint:
            for _ in range(steps):
                model.optimizer.iterations.assign_add(1)
                checkpoint.step()
        return checkpoint

    return save


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """What each test's run is a copy of."""
    run = tmp_path_factory.mktemp("trained") / "run"
    train_in(run)
    return run


@pytest.fixture
def run(tmp_path, trained):
    """A run with the committed checkpoints 2 and 4."""
    return shutil.copytree(trained, tmp_path / "run")


@pytest.fixture
def model():
    """A model that was never trained, its optimizer built."""
    made = trainings.dense(keras)
    made.optimizer.build(made.trainable_variables)
    return made
