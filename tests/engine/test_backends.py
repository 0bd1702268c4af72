"""The promises of the backend's protocol, for the embedded engine and for one that drives VELOC; without TensorFlow."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import deepfreeze
from deepfreeze.engine.backend import Backend, BackendKind, Holding, Opening, OwnMemory, Superseding, Telling, Tuning
from deepfreeze.engine.backends import table as backends
from deepfreeze.engine.backends.embedded.backend import KIND
from deepfreeze.engine.open_engine import OpenEngine
from deepfreeze.engine.target import Target
from deepfreeze.errors import UnsupportedError
from deepfreeze.format import named_values
from deepfreeze.format.levels import Level
from deepfreeze.notices import unheard
from tests.support import veloc
from tests.support.refusals import assert_four_parts
from veloc_bindings import INCOMPLETE, OK, TIMEOUT, EngineFault

SIZE = 5 * 4096 + 100
ATTEMPT = 32 * "a"
EMBEDDED = ("model.weights.h5", "records")


class Tried:
    """A row of the table of backends, and how a test reads what its backends have saved. ``read(step)``: the bytes of the model file;
    ``own(step)``: bytes in which the rank's private bytes and its named values are."""

    def __init__(self, row, folder, read=None, own=None):
        self.row, self.read, self.own = row, read, own
        self.opening = Opening(
            target=Target(str(folder), 32 * "0", ATTEMPT),
            structure=bytes(32),
            file_size=SIZE,
            timeout=30.0,
            engine=deepfreeze.Engine(in_flight=2, writers=1),
        )

    def open(self):
        self.row.load()
        return self.row.open(self.opening)

    def engine(self):
        """With what holds where a backend can't do something."""
        engine = OpenEngine(self.row, self.opening, unheard)
        engine.plan(rows(np.zeros(SIZE, np.uint8)) * np.array([0, 1, 1], np.uint64), 8, 0)
        return engine


@pytest.fixture(params=["embedded", "veloc"])
def kind(request, tmp_path, stub):
    run = tmp_path / "run"
    run.mkdir()
    if request.param == "embedded":
        files = {name: lambda step, name=name: (run / f"step-{step:010}" / name).read_bytes() for name in EMBEDDED}
        return Tried(KIND, run, *files.values())
    configuration = veloc.write_configuration(tmp_path)

    def image(step):
        (image,), torn = veloc.restore(stub, configuration, ATTEMPT, 1)
        assert image.header["step"] == step and not torn
        return image

    def read(step):
        return veloc.assemble([image(step)], tmp_path / "model.weights.h5").read_bytes()

    return Tried(veloc.kind(stub, configuration), run, read, lambda step: image(step).private + image(step).values)


def rows(data: np.ndarray) -> np.ndarray:
    """``data`` as three regions, the middle one of two pages."""
    places = np.array([0, 4096, 3 * 4096], np.uint64)
    return np.stack([data.ctypes.data + places, np.diff(np.append(places, SIZE)), places], 1).astype(np.uint64)


def content(step: int) -> np.ndarray:
    return np.random.default_rng(step).integers(0, 256, SIZE, np.uint8)


def reports_until(backend, done):
    """Polls until a report is ``done``; returns all reports."""
    found, begin = [], time.monotonic()
    while not any(done(report) for report in found):
        assert time.monotonic() - begin < 60, found
        found += backend.poll()
    return found


def planned(backend):
    plan = rows(np.zeros(SIZE, np.uint8))
    plan[:, 0] = 0
    assert backend.plan(plan, 8, 0) == []
    return backend


def test_a_checkpoint_is_reported_until_it_is_external(kind):
    backend, data = planned(kind.open()), content(3)
    assert backend.poll() == []
    backend.submit(3, rows(data), bytes(8), 1.0, b"")
    found = reports_until(backend, lambda report: report.level == Level.EXTERNAL and report.released)
    assert {(report.step, report.code, report.nbytes) for report in found} == {(3, 0, SIZE)}
    levels = [report.level for report in found]
    assert levels == sorted(levels) and found[-1].released
    assert 0 <= found[-1].written_s <= found[-1].external_s
    assert backend.poll() == [], "nothing has changed since"
    backend.close()
    assert kind.read(3) == data.tobytes()


def test_memory_may_change_once_it_is_reported_as_released(kind):
    backend, data = planned(kind.open()), content(7)
    expected = data.tobytes()
    backend.submit(7, rows(data), bytes(8), 1.0, b"")
    reports_until(backend, lambda report: report.released)
    data[:] = 0
    backend.wait(7, Level.EXTERNAL, 30.0)
    backend.close()
    assert kind.read(7) == expected


def test_what_a_rank_saves_for_itself_is_saved(kind):
    backend, data = planned(kind.open()), content(3)
    private, values = data[:8].tobytes(), named_values.encode({"mine": data[8:99].tobytes()})
    backend.submit(3, rows(data), private, 1.0, values)
    backend.wait(3, Level.EXTERNAL, 30.0)
    backend.close()
    assert private in kind.own(3) and values in kind.own(3)


def test_every_checkpoint_of_several_is_made_and_room_comes_back(kind):
    engine = kind.engine()
    assert engine.room() == 2
    held = {step: content(step) for step in range(1, 6)}
    for step, data in held.items():
        engine.submit(step, rows(data), bytes(8), data)
        assert 0 <= engine.room() < 3
    assert engine.drain(30.0)
    found, well = engine.poll()
    assert [report.step for report in found if report.level == Level.EXTERNAL] == list(held) and well
    assert engine.room() == 2
    engine.close()
    assert kind.read(5) == held[5].tobytes()


def test_a_tuned_backend_makes_every_checkpoint(kind):
    """Beside checkpoints that are under way. One without such numbers goes on with those that it has."""
    engine = kind.engine()
    held = {step: content(step) for step in range(1, 7)}
    for step, data in held.items():
        engine.tune(1, 1, step % 3)
        engine.submit(step, rows(data), bytes(8), data)
    assert engine.drain(30.0)
    assert [report.step for report in engine.poll()[0] if report.level == Level.EXTERNAL] == list(held)
    engine.close()
    assert kind.read(6) == held[6].tobytes()


def test_a_step_without_a_capture_fails_and_the_next_is_made(kind):
    backend, data = planned(kind.open()), content(4)
    backend.fail(3, "the reader is closed")
    backend.submit(4, rows(data), bytes(8), 1.0, b"")
    backend.drain(30.0)
    found = {report.step: report for report in backend.poll()}
    assert (found[3].code, found[3].message, found[3].released) == (INCOMPLETE, "the reader is closed", True)
    assert found[4].level == Level.EXTERNAL
    with pytest.raises(EngineFault, match="the reader is closed") as failed:
        backend.wait(3, Level.EXTERNAL, 1.0)
    assert failed.value.code == INCOMPLETE
    backend.close()
    assert kind.read(4) == data.tobytes()


def test_a_wait_ends_in_time_and_may_be_repeated(kind):
    backend, data = planned(kind.open()), content(1)
    backend.submit(1, rows(data), bytes(8), 1.0, b"")
    for wait in (lambda: backend.wait(1, Level.EXTERNAL, 0.0), lambda: backend.drain(0.0)):
        while True:
            try:
                wait()
                break
            except EngineFault as fault:
                assert fault.code == TIMEOUT and len(fault.message) > 10
    backend.close()


def test_a_rank_that_does_not_come_fails_the_step(kind):
    """And the waits of the others end: nothing moves."""
    kind.opening = replace(kind.opening, world=2, timeout=0.5)
    backend, data, quiet = planned(kind.open()), content(1), 0.0
    backend.submit(1, rows(data), bytes(8), 1.0, b"")
    begin, found = time.monotonic(), []
    while not any(report.code != OK for report in found):
        assert time.monotonic() - begin < 60, found
        quiet = max(quiet, backend.idle())
        found += backend.poll()
    assert {report.code for report in found} <= {OK, INCOMPLETE} and max(
        report.level for report in found
    ) < Level.EXTERNAL
    assert quiet > 0.2
    backend.close()


def children():
    """The processes that this one has started."""
    return {pid for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()}


def test_closing_ends_the_backends_threads_and_processes(kind):
    before = threading.active_count(), children()
    backend = planned(kind.open())
    backend.submit(1, rows(content(1)), bytes(8), 1.0, b"")
    backend.drain(30.0)
    backend.close()
    assert (threading.active_count(), children()) == before


def test_a_backend_has_the_methods_that_its_row_says(kind):
    backend, can = kind.open(), kind.row.can
    for protocol, says in {
        Backend: True,
        OwnMemory: can.memory,
        Holding: can.holds,
        Superseding: can.supersedes,
        Tuning: can.tunes,
        Telling: can.tells,
    }.items():
        wanted = [name for name in vars(protocol) if not name.startswith("_")]
        assert wanted and all(hasattr(backend, name) for name in wanted) == says, protocol
    backend.close()


def test_an_engine_does_without_what_its_backend_lacks(stub, tmp_path):
    engine = Tried(veloc.kind(stub, veloc.write_configuration(tmp_path)), tmp_path).engine()
    assert not engine.hold(1) and engine.progress() == [] and engine.stats() == {}
    engine.supersede(1, 2)
    engine.close()


@pytest.mark.parametrize("bound", ["bounded", "one_memory"])
def test_a_bound_that_a_backend_can_not_keep_is_refused(stub, tmp_path, bound):
    tried = Tried(veloc.kind(stub, veloc.write_configuration(tmp_path)), tmp_path)
    with pytest.raises(UnsupportedError) as refused:
        OpenEngine(tried.row, replace(tried.opening, **{bound: True}), unheard)
    option = {"bounded": "storage=", "one_memory": "memory="}[bound]
    assert_four_parts(
        refused.value, where=option, expected="a backend that can keep to this bound", found="a backend that can't"
    )


def test_what_owns_the_memory_lives_until_it_is_released(kind):
    alive = []

    class Memory:
        def __init__(self, data):
            self.data = data
            alive.append(self)

    bound, data = kind.engine(), content(2)
    bound.submit(2, rows(data), bytes(8), Memory(data))
    assert bound.unfinished == [2]
    bound.wait(2, Level.EXTERNAL)
    while bound._owners:
        bound.poll()
    assert bound.unfinished == []
    bound.close()
    assert kind.read(2) == data.tobytes()


def test_a_training_takes_the_backend_that_the_table_names(monkeypatch):
    assert backends.chosen() is KIND and "embedded" in backends.TABLE
    another = BackendKind(print, print)
    monkeypatch.setitem(backends.TABLE, "another", another)
    monkeypatch.setattr(backends, "DEFAULT", "another")
    assert backends.chosen() is another
    with pytest.raises(EngineFault, match="the backend another can't finish what another one has left"):
        backends.rescue()
