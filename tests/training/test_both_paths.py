"""Promises of the callback that hold for both ways of capture: by the engine's op into the engine's memory, and by TensorFlow's ops
alone into TensorFlow's memory (``Capture(path="graph")``), which a backend without memory of its own reads. ``PROMISES`` is the table;
tests/horovod/test_both_paths.py has those of two ranks."""

from __future__ import annotations

import gc
import weakref
from collections import Counter
from dataclasses import replace

import keras
import pytest

import deepfreeze
from deepfreeze.engine.backends import table as backends
from deepfreeze.engine.backends.embedded.backend import KIND, EmbeddedBackend
from deepfreeze.engine.open_engine import OpenEngine
from deepfreeze.format.levels import Level
from deepfreeze.format.tensors import REPLICATED, TensorSpec
from deepfreeze.plan.placement import PLACEMENTS, UNIT, per_layer
from tests.support import trainings

KERNELS = [TensorSpec(name, "float32", (trainings.FEATURES, 8000), REPLICATED) for name in ("kernel", "velocity")]

pytestmark = pytest.mark.tensorflow


def make(**compiling):
    return trainings.dense(keras, **compiling)


def checkpoint(folder, path, **options):
    return deepfreeze.Checkpoint(folder / "run", keep=100, capture=deepfreeze.Capture(path=path), **options)


def fit(model, x, *callbacks):
    model.fit(x, verbose=0, shuffle=False, callbacks=list(callbacks))


def every_step_is_as_stock_keras_saves_it(folder, path, monkeypatch):
    x = trainings.data(6)
    trainings.train_undisturbed(keras, make, folder, x)
    fit(trainings.alike(keras, make), x, checkpoint(folder, path, every=1))
    trainings.assert_run_is(folder / "run", folder, [1, 2, 3, 4, 5, 6])


def a_resumed_training_goes_on_bit_exactly(folder, path, monkeypatch):
    x = trainings.data(7)
    trainings.train_undisturbed(keras, make, folder, x)
    fit(trainings.alike(keras, make), x.take(4), checkpoint(folder, path, every=2))
    model, second = make(), checkpoint(folder, path, every=2)
    assert second.open(model) == 4
    fit(model, x.skip(4), second)
    trainings.assert_run_is(folder / "run", folder, [2, 4, 6, 7], resumed=True)


def many_pieces_of_one_variable_are_captured(folder, path, monkeypatch):
    """As among hundreds of ranks, where a rank takes several turns in a layer: here every second turn, and then every other one."""

    def turns(specs, world, granule=UNIT):
        of_many = per_layer(specs, 40)
        return [[shard for part in (of_many[::2], of_many[1::2]) for shards in part for shard in shards]]

    def wide():
        return trainings.dense(keras, units=8000)

    assert max(Counter(shard.tensor for shard in turns(KERNELS, 1)[0]).values()) > 10
    monkeypatch.setitem(PLACEMENTS, "per_layer", turns)
    x = trainings.data(3)
    trainings.train_undisturbed(keras, wide, folder, x)
    fit(trainings.alike(keras, wide), x, checkpoint(folder, path, every=1))
    trainings.assert_run_is(folder / "run", folder, [1, 2, 3])


def a_step_inside_an_execution_is_captured(folder, path, monkeypatch):
    x = trainings.data(12)
    trainings.train_undisturbed(keras, make, folder, x)
    inside = trainings.alike(keras, lambda: make(steps_per_execution=4))
    fit(inside, x, checkpoint(folder, path, every=5))
    trainings.assert_run_is(folder / "run", folder, [5, 10, 12])


class Reluctant(EmbeddedBackend):
    """An engine that releases no memory before ``willing``: its reports say so, and its room."""

    willing = False

    def poll(self):
        held = getattr(self, "_held", [])
        self._held = [*held, *super().poll()]
        if not Reluctant.willing:
            return []
        given, self._held = self._held, []
        return given

    def room(self):
        return super().room() if Reluctant.willing else 0


@pytest.fixture
def reluctant(monkeypatch):
    monkeypatch.setitem(backends.TABLE, "embedded", replace(KIND, open=Reluctant.of))
    monkeypatch.setattr(Reluctant, "willing", False)
    return Reluctant


def memory_lives_until_it_is_released(folder, path, monkeypatch):
    """Whatever owns a capture is referenced until the engine has reported it as released, and no longer."""
    owners: dict[int, weakref.ref] = {}
    submit, poll = OpenEngine.submit, OpenEngine.poll
    alive, released = [], set()

    class Owner:
        def __init__(self, held):
            self.held = held

    def noted(self, step, regions, private, hold, values=b""):
        owner = Owner(hold)
        owners[step] = weakref.ref(owner)
        submit(self, step, regions, private, owner, values)

    def polled(self):
        before = {step for step, owner in owners.items() if owner() is not None}
        alive.append(before >= owners.keys() - released)
        reports, well = poll(self)
        released.update(report.step for report in reports if report.released)
        return reports, well

    monkeypatch.setattr(OpenEngine, "submit", noted)
    monkeypatch.setattr(OpenEngine, "poll", polled)
    saving = checkpoint(folder, path, every=2, engine=deepfreeze.Engine(in_flight=4))

    class Release(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            gc.collect()
            Reluctant.willing = batch >= 6

    fit(make(), trainings.data(9), saving, Release())
    gc.collect()
    assert list(owners) == [2, 4, 6, 8, 9] and all(alive) and released == set(owners)
    assert not any(owner() for owner in owners.values()), "nothing is held for ever"


def a_step_without_room_is_skipped(folder, path, monkeypatch):
    saving = checkpoint(folder, path, every=2, final=False, engine=deepfreeze.Engine(when_full="skip"))

    class Release(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            Reluctant.willing = batch >= 5

    x = trainings.data(12)
    trainings.train_undisturbed(keras, make, folder, x)
    fit(trainings.alike(keras, make), x, saving, Release())
    kept = saving.stats.steps
    assert saving.stats.skipped and sorted([*saving.stats.skipped, *kept]) == [2, 4, 6, 8, 10, 12]
    trainings.assert_run_is(folder / "run", folder, kept)


def waiting_for_a_level_ends_when_it_is_reached(folder, path, monkeypatch):
    run, seen = folder / "run", []

    class Look(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            seen.append([info.step for info in deepfreeze.checkpoints(run)])

    fit(make(), trainings.data(4), checkpoint(folder, path, every=2, wait_for=Level.EXTERNAL.label), Look())
    assert seen == [[], [2], [2], [2, 4]]


#: promise -> whether the engine is made to keep memory
PROMISES = {
    every_step_is_as_stock_keras_saves_it: False,
    a_resumed_training_goes_on_bit_exactly: False,
    many_pieces_of_one_variable_are_captured: False,
    a_step_inside_an_execution_is_captured: False,
    memory_lives_until_it_is_released: True,
    a_step_without_room_is_skipped: True,
    waiting_for_a_level_ends_when_it_is_reached: False,
}


# Captures into the engine's memory are the default, so many tests have these promises; in `make test-all` here too.
OFTEN = {(promise, path) for promise in PROMISES for path in ("auto", "graph") if path == "graph" or PROMISES[promise]}
OFTEN.add((many_pieces_of_one_variable_are_captured, "auto"))
OFTEN.remove((many_pieces_of_one_variable_are_captured, "graph"))


@pytest.mark.parametrize(
    ("promise", "path"),
    [
        pytest.param(promise, path, marks=[] if (promise, path) in OFTEN else pytest.mark.full)
        for promise in PROMISES
        for path in ("auto", "graph")
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_both_ways_of_capture_keep(promise, path, tmp_path, monkeypatch, request):
    """Both ways of capture keep the promise of the callback that the parameter names."""
    if PROMISES[promise]:
        request.getfixturevalue("reluctant")
    promise(tmp_path, path, monkeypatch)
