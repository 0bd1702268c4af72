"""A framework is a folder and a row: a toy that has JAX's hard parts trains, saves and resumes."""

import numpy as np
import pytest

import deepfreeze
from deepfreeze.data import Resumable
from deepfreeze.frameworks import table
from deepfreeze.process_state import PROCESS
from tests.support import kerases

pytestmark = pytest.mark.tensorflow  # Keras's objects need some backend
EPOCHS, BATCHES = 4, 6
LAST = EPOCHS * BATCHES


class Killed(Exception):
    """What ends a training in a step."""


@pytest.fixture
def toys(keras, monkeypatch):
    if kerases.is_2(keras):
        pytest.skip("the toy is a model of Keras 3")
    from tests.frameworks.toy import model

    plain = table.backend_of
    monkeypatch.setitem(table.TABLE, "toy", table.Folder("Toy", "tests.frameworks.toy"))
    monkeypatch.setattr(table, "backend_of", lambda one: "toy" if isinstance(one, model.ToyModel) else plain(one))
    return Toys(keras, model.toy_model)


class Toys:
    """Trains a toy in a run, as a process of its own would."""

    def __init__(self, keras, make):
        self.keras, self._make = keras, make
        self.model = None

    def fit(self, run, end=None, data=False, **options):
        """Trains to the end, or up to the step ``end``; ``data``: whether the data is resumable. Returns the values of the weights and of
        the optimizer, and the steps that the callback has saved."""
        PROCESS.forget()
        self.model = model = self._make()
        rng = np.random.default_rng(5)
        x, y = rng.standard_normal((24, 4)).astype("f4"), rng.standard_normal((24, 2)).astype("f4")
        given = Resumable((x, y), 4, seed=7)
        if data:
            options["data"] = given
        checkpoint = deepfreeze.Checkpoint(run, every=1, keep=100, verbose=0, **options)

        class Ends(self.keras.callbacks.Callback):
            def on_train_batch_end(self, batch, logs=None):
                if deepfreeze.latest(run) is not None and checkpoint.stats.steps[-1:] == [end]:
                    raise Killed

        batches = (given,) if data else (x, y)
        more = {} if data else {"batch_size": 4, "shuffle": False}
        try:
            model.fit(*batches, epochs=EPOCHS, verbose=0, callbacks=[checkpoint, Ends()], **more)
        except Killed:
            checkpoint.close()
        model.put_back()
        return [one.numpy() for one in [*model.weights, *model.optimizer.variables]], checkpoint.stats.steps


class Reader:
    """An object of the user's that looks at the model when a checkpoint is taken."""

    def __init__(self, toys):
        self._toys = toys
        self.loaded = None

    def state_dict(self):
        return {"sum": float(sum(one.sum() for one in self._toys.model.get_weights()))}

    def load_state_dict(self, state):
        self.loaded = state["sum"]


def assert_same(found, wanted):
    assert all(np.array_equal(one, other) for one, other in zip(found, wanted, strict=True))


def test_a_toy_saves_each_step_and_goes_on_where_it_was(toys, tmp_path):
    whole, steps = toys.fit(tmp_path / "whole")
    assert steps == list(range(1, LAST + 1)) == [one.step for one in deepfreeze.checkpoints(tmp_path / "whole")]
    assert toys.fit(tmp_path / "run", end=2 * BATCHES)[1][-1] == 2 * BATCHES
    found, steps = toys.fit(tmp_path / "run")
    assert steps == list(range(2 * BATCHES + 1, LAST + 1))
    assert_same(found, whole)


def test_a_toy_goes_on_inside_of_an_epoch_with_all_that_is_attached(toys, tmp_path):
    """Whoever reads the model for a checkpoint finds its values there."""

    def options():
        rate = toys.keras.callbacks.ReduceLROnPlateau("loss", patience=1)
        return {"data": True, "rng": "all", "extra": {"reader": Reader(toys), "rate": rate}}

    whole, _ = toys.fit(tmp_path / "whole", **options())
    toys.fit(tmp_path / "run", end=BATCHES + 2, **options())
    given = options()
    found, steps = toys.fit(tmp_path / "run", **given)
    assert steps == list(range(BATCHES + 3, LAST + 1)) and given["extra"]["reader"].loaded is not None
    assert_same(found, whole)


def test_a_toy_says_what_it_can_not_do(toys, tmp_path):
    with pytest.raises(deepfreeze.UnsupportedError, match=r"this framework has no memory of its own .* Capture\(path="):
        toys.fit(tmp_path / "run", capture=deepfreeze.Capture(path="graph"))


def test_a_checkpoint_of_a_toy_is_restored_and_read_in_a_callback(toys, tmp_path):
    """The model trains meanwhile, and goes on with the values that it was given."""
    first, _ = toys.fit(tmp_path / "first", end=3)

    class Restores(toys.keras.callbacks.Callback):
        found = None

        def on_train_batch_end(self, batch, logs=None):
            if batch == 1:
                deepfreeze.restore(self.model, tmp_path / "first", step=3)
                self.found = [one.numpy() for one in self.model.trainable_variables]

    restores = Restores()
    model = toys.model
    model.fit(np.ones((12, 4), "f4"), np.ones((12, 2), "f4"), batch_size=4, verbose=0, callbacks=[restores])
    assert_same(restores.found, first[:2])
