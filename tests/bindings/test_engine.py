from __future__ import annotations

import os
import signal

import google_crc32c
import numpy as np
import pytest

import veloc_bindings as vb
from tests.support import content
from tests.support.ranks import committed, options, slots

pytestmark = pytest.mark.usefixtures("library")


def opened(tmp_path, **more) -> vb.Engine:
    own = options(tmp_path, **more)
    attempt = content.attempt_id(own.pop("attempt"))
    return vb.Engine.open(run_id=content.RUN_ID, attempt=attempt, structure=content.STRUCTURE, **own)


def test_crc32c_agrees_with_google_s_and_can_be_continued():
    data = content.model_bytes(1, 1, 100_001)
    whole = google_crc32c.value(bytes(data))
    assert vb.crc32c(data) == vb.crc32c(bytes(data)) == vb.crc32c(np.frombuffer(data, np.uint8)) == whole
    assert vb.crc32c(data[70_000:], vb.crc32c(data[:70_000])) == whole
    assert vb.crc32c(np.zeros(8, np.float32)) == google_crc32c.value(bytes(32))
    assert vb.crc32c(b"") == 0


@pytest.mark.parametrize("form", ["buffers", "addresses", "array", "ready"])
def test_every_form_of_regions_gives_the_same_checkpoint(tmp_path, form):
    data = np.frombuffer(content.model_bytes(1, 10, 300_000), np.uint8)
    rows = [(data.ctypes.data + a, b - a, a) for a, b in ((0, 5), (5, 200_000), (200_000, 300_000))]
    regions = {
        "buffers": [(data[at : at + n], n, at) for _, n, at in rows],
        "addresses": rows,
        "array": np.array(rows, dtype=np.uint64),
        "ready": vb.region_array(rows),
    }[form]
    with opened(tmp_path, file_size=300_000) as engine:
        engine.submit(10, regions, content.private_bytes(1, 10, 0), timeout=60)
        engine.drain(60)
        assert [report.level for report in engine.poll()] == [vb.EXTERNAL]
    assert engine.closed and list(committed(tmp_path / "run")) == [10]


def test_wrong_forms_of_regions_are_refused():
    for wrong in (np.zeros((2, 3), np.int32), np.zeros((2, 2), np.uint64), np.zeros((2, 6), np.uint64)[:, ::2]):
        with pytest.raises(ValueError, match="regions"):
            vb.region_array(wrong)
    with pytest.raises(TypeError, match="read-only"):
        vb.region_array([(memoryview(b"abc"), 3, 0)])


def test_a_closed_engine_is_refused_and_may_be_closed_again(tmp_path):
    engine = opened(tmp_path)
    engine.close()
    engine.close()
    with pytest.raises(vb.EngineFault) as caught:
        engine.poll()
    assert caught.value.code == vb.CLOSED


def test_a_forked_child_leaves_its_parent_s_engine_alone(tmp_path):
    data = np.frombuffer(content.model_bytes(1, 10, 300_000), np.uint8)
    # Rank 1 never comes, so that the slot stays in use.
    engine = opened(tmp_path, file_size=300_000, world=2)
    engine.submit(10, [(data, 300_000, 0)], b"", timeout=60)
    engine.wait(10, vb.LOCAL, timeout=60)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.alarm(20)  # ends the child if a call hangs
            with pytest.raises(vb.EngineFault, match="forked from it") as caught:
                engine.submit(20, [(data, 300_000, 0)], b"", timeout=1)
            engine.close()
            status = 0 if caught.value.code == vb.INVALID else 2
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert [vb.slot_inspect(slot).step for slot in slots(tmp_path)] == [10]
    engine.submit(20, [(data, 300_000, 0)], b"", timeout=60)
    engine.wait(20, vb.LOCAL, timeout=60)
    engine.close()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"rank": 2, "world": 2}, "rank 2 is not below world 2"),
        ({"chunk_bytes": 5000}, "multiple of 4096"),
        ({"file_size": 0}, "file_size"),
        ({"keep": 0}, "keep"),
        ({"run_dir": "/nonexistent/run"}, "expected an existing directory"),
    ],
)
def test_wrong_options_are_named(tmp_path, wrong, message):
    with pytest.raises(vb.EngineFault, match=message) as caught:
        opened(tmp_path, **wrong)
    assert caught.value.code == vb.INVALID


def test_wrong_length_of_an_id_is_named(tmp_path):
    with pytest.raises(ValueError, match="attempt: expected 16 bytes; found 3"):
        vb.commit(tmp_path, 1, b"abc")
