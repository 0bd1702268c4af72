"""Whatever part of closing fails, no hook stays in the model and the run's lock is free."""

import keras
import pytest

import deepfreeze
from deepfreeze.engine.open_engine import OpenEngine
from deepfreeze.frameworks.tensorflow.capture import TensorFlowCapture
from deepfreeze.frameworks.tensorflow.engine_buffers import EngineBuffers
from deepfreeze.freeze.saver import Saver
from deepfreeze.ranks.agreement import Agreement
from deepfreeze.store.lock import Lock
from tests.support import trainings
from tests.support.refusals import assert_four_parts
from veloc_bindings import INVALID, TIMEOUT, Area, EmbeddedEngine, EngineFault

pytestmark = pytest.mark.tensorflow


def assert_nothing_stays(model, run):
    assert "train_step" not in vars(model) and "apply" not in vars(model.optimizer), "no hook"
    Lock.acquire(run).release()
    model.fit(trainings.data(2), verbose=0, callbacks=[deepfreeze.Checkpoint(run, every=1)])


@pytest.mark.parametrize(
    "part",
    [Saver, *(pytest.param(part, marks=pytest.mark.full) for part in (TensorFlowCapture, Agreement, OpenEngine))],
    ids=lambda part: part.__name__,
)
def test_a_part_that_fails_to_close_keeps_no_other_from_it(tmp_path, monkeypatch, part):
    model, close = trainings.dense(keras), part.close

    def fails(self):
        close(self)
        raise RuntimeError("it fails to close")

    monkeypatch.setattr(part, "close", fails)
    checkpoint = deepfreeze.Checkpoint(tmp_path / "run", every=1)
    with pytest.raises(RuntimeError, match="it fails to close"):
        model.fit(trainings.data(2), verbose=0, callbacks=[checkpoint])
        checkpoint.close()
    monkeypatch.undo()
    assert_nothing_stays(model, tmp_path / "run")


def test_a_fault_of_the_engine_becomes_an_error_of_this_library(tmp_path, monkeypatch):
    def fails(self):
        raise EngineFault(INVALID, "a fault of the engine")

    model, checkpoint = trainings.dense(keras), deepfreeze.Checkpoint(tmp_path / "run", every=1)
    monkeypatch.setattr(EmbeddedEngine, "poll", fails)
    with pytest.raises(deepfreeze.EngineError, match="a fault of the engine"):
        model.fit(trainings.data(4), verbose=0, callbacks=[checkpoint])
    monkeypatch.undo()
    checkpoint.close()
    assert_nothing_stays(model, tmp_path / "run")


def fault(self, *_):
    raise EngineFault(INVALID, "a fault of the engine")


def hangs(self, *_):
    raise EngineFault(TIMEOUT, "nothing moves")


@pytest.mark.full
@pytest.mark.parametrize(
    ("broken", "expected"),
    [
        ({(Area, "__init__"): fault}, "memory for captures"),
        ({(EngineBuffers, "place"): fault}, "places for captures in the engine's memory"),
        ({(EmbeddedEngine, "drain"): hangs, (EmbeddedEngine, "idle"): fault}, "whether bytes move"),
    ],
    ids=["area", "places", "idle"],
)
def test_a_fault_beside_the_backend_becomes_one_too(tmp_path, monkeypatch, broken, expected):
    """A fault of the captures' area, of their places in the engine's memory, and of the question whether bytes move."""
    model = trainings.dense(keras)
    for (owner, name), fails in broken.items():
        monkeypatch.setattr(owner, name, fails)
    with pytest.raises(deepfreeze.EngineError, match="a fault of the engine") as raised:
        model.fit(
            trainings.data(2), verbose=0, callbacks=[deepfreeze.Checkpoint(tmp_path / "run", every=1, timeout=0.2)]
        )
    assert_four_parts(raised.value, where=str(tmp_path / "run"), expected=expected, found="a fault of the engine")
    monkeypatch.undo()
    assert_nothing_stays(model, tmp_path / "run")


def test_a_rank_whose_engine_does_not_open_leaves_nothing(tmp_path, monkeypatch):
    def fails(self, area, seconds):
        raise EngineFault(INVALID, "it does not attach")

    model = trainings.dense(keras)
    monkeypatch.setattr(EmbeddedEngine, "attach", fails)
    with pytest.raises(deepfreeze.EngineError, match="it does not attach"):
        model.fit(trainings.data(2), verbose=0, callbacks=[deepfreeze.Checkpoint(tmp_path / "run", every=1)])
    monkeypatch.undo()
    assert_nothing_stays(model, tmp_path / "run")
