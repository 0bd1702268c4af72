"""``Engine(transfers=)`` in a training: which checkpoints are committed, and which are given up."""

import json

import keras
import pytest

import deepfreeze
from deepfreeze.freeze.saver import Saver
from tests.support import jobs, trainings
from tests.support.refusals import assert_four_parts

pytestmark = pytest.mark.tensorflow
OPTIONS = ["every=1", "local=null", "verbose=0", "transfers=3", "in_flight=3", "uncommitted=3", "pause=0.05"]
SLOW = "delay=1500:fdatasync:step-0000000003.partial:1"


def train(run, library, fault, steps, *flat):
    environment = {"DEEPFREEZE_LIBRARY": library, "DEEPFREEZE_FAULT": fault}
    told = jobs.run("small.py", run, steps, *OPTIONS, *flat, **environment)
    return json.loads(told.splitlines()[-1])


def test_a_training_whose_engine_is_tuned_saves_every_step(tmp_path, monkeypatch):
    """The engine of the training is told other numbers before each step, and wrong ones too."""
    save, told = Saver.save, []

    def tunes(self, step, *given, **more):
        self.engine.tune(1 + step % 4, 1 + step % 2, step % 3)
        with pytest.raises(deepfreeze.EngineError) as caught:
            self.engine.tune(1, 3, 1)
        told.append((step, caught.value))
        save(self, step, *given, **more)

    monkeypatch.setattr(Saver, "save", tunes)
    engine = deepfreeze.Engine(writers=4, transfers=2, uncommitted=2)
    run = tmp_path / "run"
    checkpoint = deepfreeze.Checkpoint(run, every=1, keep=99, engine=engine)
    trainings.dense(keras).fit(trainings.data(9), verbose=0, callbacks=[checkpoint])
    checkpoint.close()
    assert [step for step, _ in told] == [info.step for info in deepfreeze.checkpoints(run)] == list(range(1, 10))
    assert_four_parts(told[0][1])
    assert "tune: transfers: expected 1 to 2, as many as the engine was opened with; found 3" in str(told[0][1])


@pytest.mark.full
def test_what_retention_would_not_keep_is_given_up_for_a_newer_one(tmp_path, testing_library):
    """Step 3 takes long, and newer steps are committed meanwhile. With keep=1 nobody wants it any more; with keep=99 it is committed late.
    Neither is a failure."""
    run = tmp_path / "one"
    told = train(run, testing_library, SLOW, 20, "keep=1")
    assert 3 in told["superseded"] and told["error"] is None and told["warnings"] == []
    assert [info.step for info in deepfreeze.checkpoints(run)] == [20]
    assert not list(run.glob("*partial*")) and not list(run.glob("*failed*"))
    run = tmp_path / "all"
    told = train(run, testing_library, SLOW, 20, "keep=99")
    assert told["superseded"] == [] and told["error"] is None
    assert [info.step for info in deepfreeze.checkpoints(run)] == list(range(1, 21))
