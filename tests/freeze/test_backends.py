"""The promises of the backend's protocol, for the embedded engine and for one that drives VELOC; without TensorFlow."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import deepfreeze
from deepfreeze.format.levels import Level
from deepfreeze.freeze import backends
from deepfreeze.freeze.backend import Opening
from deepfreeze.freeze.bound_backend import BoundBackend
from deepfreeze.freeze.embedded_backend import EmbeddedBackend
from deepfreeze.notices import unheard
from deepfreeze.store.target import Target
from tests.support import veloc
from veloc_bindings import INCOMPLETE, TIMEOUT, EngineFault

SIZE = 5 * 4096 + 100
ATTEMPT = 32 * "a"


class Kind:
    """A backend's class, and how a test reads what it has saved."""

    def __init__(self, backend, folder, read):
        self.backend, self.read = backend, read
        self.opening = Opening(
            target=Target(str(folder), 32 * "0", ATTEMPT),
            structure=bytes(32),
            file_size=SIZE,
            timeout=30.0,
            engine=deepfreeze.Engine(in_flight=2, writers=1),
        )

    def open(self):
        self.backend.load()
        return self.backend.open(self.opening)


@pytest.fixture(params=["embedded", "veloc"])
def kind(request, tmp_path, stub):
    run = tmp_path / "run"
    run.mkdir()
    if request.param == "embedded":
        return Kind(EmbeddedBackend, run, lambda step: (run / f"step-{step:010}/model.weights.h5").read_bytes())
    made = veloc.backend(stub, veloc.write_configuration(tmp_path))

    def read(step):
        (image,), torn = veloc.restore(stub, made.configuration, ATTEMPT, 1)
        assert image.header["step"] == step and not torn
        return veloc.assemble([image], tmp_path / "model.weights.h5").read_bytes()

    return Kind(made, run, read)


def rows(data: np.ndarray) -> np.ndarray:
    """``data`` as three regions, the middle one of two pages."""
    places = np.array([0, 4096, 3 * 4096], np.uint64)
    return np.stack([data.ctypes.data + places, np.diff(np.append(places, SIZE)), places], 1).astype(np.uint64)


def content(step: int) -> np.ndarray:
    return np.random.default_rng(step).integers(0, 256, SIZE, np.uint8)


def reports_until(backend, done):
    """Polls until a report is ``done``; returns all reports."""
    found = []
    while not any(done(report) for report in found):
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
    backend.submit(3, rows(data), bytes(8), 1.0)
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
    backend.submit(7, rows(data), bytes(8), 1.0)
    reports_until(backend, lambda report: report.released)
    data[:] = 0
    backend.wait(7, Level.EXTERNAL, 30.0)
    backend.close()
    assert kind.read(7) == expected


def test_every_checkpoint_of_several_is_made_and_room_comes_back(kind):
    backend = planned(kind.open())
    assert backend.room() == 2
    held = {step: content(step) for step in range(1, 6)}
    for step, data in held.items():
        backend.submit(step, rows(data), bytes(8), 30.0)
        assert 0 <= backend.room() < 3
    backend.drain(30.0)
    found = backend.poll()
    assert [report.step for report in found if report.level == Level.EXTERNAL] == list(held)
    assert backend.room() == 2 and backend.idle() < 30
    backend.close()
    assert kind.read(5) == held[5].tobytes()


def test_a_tuned_backend_makes_every_checkpoint(kind):
    """Beside checkpoints that are under way. A backend without such numbers ignores them."""
    backend = planned(kind.open())
    held = {step: content(step) for step in range(1, 7)}
    for step, data in held.items():
        backend.tune(1, 1, step % 3)
        backend.submit(step, rows(data), bytes(8), 30.0)
    backend.drain(30.0)
    assert [report.step for report in backend.poll() if report.level == Level.EXTERNAL] == list(held)
    backend.close()
    assert kind.read(6) == held[6].tobytes()


def test_a_step_without_a_capture_fails_and_the_next_is_made(kind):
    backend, data = planned(kind.open()), content(4)
    backend.fail(3, "the reader is closed")
    backend.submit(4, rows(data), bytes(8), 1.0)
    backend.drain(30.0)
    found = {report.step: report for report in backend.poll()}
    assert (found[3].code, found[3].message, found[3].released) == (INCOMPLETE, "the reader is closed", True)
    assert found[4].level == Level.EXTERNAL and backend.room() == 2
    backend.close()
    assert kind.read(4) == data.tobytes()


def test_a_wait_ends_in_time_and_may_be_repeated(kind):
    backend, data = planned(kind.open()), content(1)
    backend.submit(1, rows(data), bytes(8), 1.0)
    for wait in (lambda: backend.wait(1, Level.EXTERNAL, 0.0), lambda: backend.drain(0.0)):
        while True:
            try:
                wait()
                break
            except EngineFault as fault:
                assert fault.code == TIMEOUT and len(fault.message) > 10
    backend.close()


def test_closing_ends_the_backends_threads(kind):
    before = threading.active_count()
    backend = planned(kind.open())
    backend.submit(1, rows(content(1)), bytes(8), 1.0)
    backend.drain(30.0)
    backend.close()
    assert threading.active_count() == before


def test_a_backend_has_memory_if_its_class_says_so(kind):
    backend = kind.open()
    assert (backend.memory() is not None) == kind.backend.has_memory
    backend.close()


def test_what_owns_the_memory_lives_until_it_is_released(kind):
    alive = []

    class Memory:
        def __init__(self, data):
            self.data = data
            alive.append(self)

    bound, data = BoundBackend(kind.backend, kind.opening, unheard), content(2)
    bound.plan(rows(data) * np.array([0, 1, 1], np.uint64), 8, 0)
    bound.submit(2, rows(data), bytes(8), Memory(data))
    assert bound.unfinished == [2]
    bound.wait(2, Level.EXTERNAL)
    while bound._owners:
        bound.poll()
    assert bound.unfinished == []
    bound.close()
    assert kind.read(2) == data.tobytes()


def test_a_training_takes_the_backend_that_the_table_names(monkeypatch):
    assert backends.chosen() is EmbeddedBackend and list(backends.BACKENDS) == ["embedded"]
    monkeypatch.setitem(backends.BACKENDS, "veloc", veloc.VelocBackend)
    monkeypatch.setattr(backends, "DEFAULT", "veloc")
    assert backends.chosen() is veloc.VelocBackend
