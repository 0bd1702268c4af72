from __future__ import annotations

import ctypes
import os
import signal
import time

import google_crc32c
import numpy as np
import pytest

import veloc_bindings as vb
from tests.support import content
from tests.support.ranks import committed, options, slots
from veloc_bindings import _table
from veloc_bindings._library import library

pytestmark = pytest.mark.usefixtures("library")


def opened(tmp_path, **more) -> vb.EmbeddedEngine:
    own = options(tmp_path, **more)
    attempt = content.attempt_id(own.pop("attempt"))
    return vb.EmbeddedEngine.open(run_id=content.RUN_ID, attempt=attempt, structure=content.STRUCTURE, **own)


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


def test_progress_says_how_far_a_checkpoint_is_and_what_it_waits_for(tmp_path):
    """Rank 1 does not come, so the commit waits for its part."""
    data = content.model_bytes(1, 10, 8192)
    with opened(tmp_path, file_size=16384, world=2, rank=0) as engine:
        assert engine.progress() == []
        engine.submit(10, [(data, 8192, 0)], content.private_bytes(1, 10, 0), timeout=60)
        while not (found := engine.progress())[0].waits_for:
            time.sleep(0.01)
        (one,) = found
        assert (one.step, one.level, one.published) == (10, vb.LOCAL, True)
        assert (one.nbytes, one.local_bytes, one.external_bytes) == (8192, 8192, 8192) and one.age_s > 0
        assert one.waits_for.startswith("waits for its commit (") and "rank 1" in one.waits_for
        engine.fail(20, "no capture")
        assert [one.step for one in engine.progress()] == [10, 20]


def test_what_is_told_is_removed_and_nothing_else(tmp_path):
    with opened(tmp_path, file_size=8192) as engine:
        held = {step: content.model_bytes(1, step, 8192) for step in (10, 20, 30, 40)}
        for step, data in held.items():
            engine.submit(step, [(data, 8192, 0)], content.private_bytes(1, step, 0), timeout=60)
        engine.drain(60)
        engine.remove([10, 30, 999])
        engine.remove([])
        engine.drain(60)
        assert list(committed(tmp_path / "run")) == [20, 40]
        assert [report for report in engine.poll() if report.step < 0] == []
        engine.remove(iter([20]))  # closing finishes what was asked for
    assert sorted(path.name for path in (tmp_path / "run").glob("*step*")) == ["step-0000000040"]
    with opened(tmp_path, file_size=16384, rank=1, world=2) as engine:
        with pytest.raises(vb.EngineFault, match="rank 0 alone removes checkpoints") as caught:
            engine.remove([40])
        assert caught.value.code == vb.INVALID
    with pytest.raises(vb.EngineFault, match="closed"):
        engine.remove([40])


def test_an_engine_is_tuned_within_what_it_was_opened_with(tmp_path):
    """Wrong numbers change none of the three; and a closed engine is refused."""
    with opened(tmp_path, file_size=8192, writers=4, transfers=2, uncommitted=2, in_flight=3) as engine:
        assert engine.room() == 2
        engine.tune(writers=1, transfers=1, uncommitted=1)
        assert engine.room() == 1
        for wrong in [(0, 1, 2), (5, 1, 2), ((1 << 32) + 1, 1, 2), (1, 0, 2), (1, 3, 2), (1, 1, 3)]:
            with pytest.raises(vb.EngineFault, match=r"tune: \w+: expected 1 to [24], .*; found \d+\. ") as caught:
                engine.tune(*wrong)
            assert caught.value.code == vb.INVALID and engine.room() == 1
        held = {step: content.model_bytes(1, step, 8192) for step in (10, 20, 30)}
        for step, data in held.items():
            engine.submit(step, [(data, 8192, 0)], content.private_bytes(1, step, 0), timeout=60)
        engine.tune(writers=4, transfers=2, uncommitted=0)
        engine.drain(60)
        assert engine.room() == 2
    assert list(committed(tmp_path / "run")) == [10, 20, 30]
    with pytest.raises(vb.EngineFault, match="closed"):
        engine.tune(1, 1, 1)


def test_regions_that_leave_a_part_of_a_page_to_another_rank_are_refused(tmp_path):
    data = np.frombuffer(content.model_bytes(1, 10, 300_000), np.uint8)
    with opened(tmp_path, file_size=300_000, world=2) as engine:
        for call in (lambda rows: engine.submit(10, rows, b"", 60), lambda rows: engine.plan(rows, 0)):
            with pytest.raises(
                vb.EngineFault, match=r"found a piece that ends at byte 5000\. Give each page"
            ) as caught:
                call([(data.ctypes.data, 5000, 0)])
            assert caught.value.code == vb.INVALID


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
        ({"run_dir": "/nonexistent/run"}, "expected an existing directory"),
    ],
)
def test_wrong_options_are_named(tmp_path, wrong, message):
    with pytest.raises(vb.EngineFault, match=message) as caught:
        opened(tmp_path, **wrong)
    assert caught.value.code == vb.INVALID


PRIVATE = 256 << 20  # a record is at most that large, with its private bytes
LONGEST = 2**63 - 1


@pytest.mark.parametrize(
    ("private", "regions", "options_", "message"),
    [
        (PRIVATE, [(0, 300_000)], {}, f"found 5 extents, {PRIVATE} private bytes and 0 bytes of values"),
        (
            0,
            [(0, 1 << 50)],
            {"file_size": 1 << 50, "chunk_bytes": 4096},
            f"found {1 << 38} extents, 0 private bytes and 0 bytes of values",
        ),
        (11, [(0, 300_000)], {"hashes": 3}, "12 private bytes or more.* 11"),
    ],
    ids=["private-bytes", "extents", "checksums"],
)
def test_what_no_record_can_hold_is_refused_before_a_byte_is_written(tmp_path, private, regions, options_, message):
    data = np.zeros(300_000, np.uint8)
    with opened(tmp_path, **{"file_size": 300_000, **options_}) as engine:
        rows = [(data.ctypes.data, nbytes, offset) for offset, nbytes in regions]
        for call in (lambda: engine.plan(rows, private), lambda: engine.submit(10, rows, bytes(private), timeout=60)):
            with pytest.raises(vb.EngineFault, match=message) as caught:
                call()
            assert caught.value.code == vb.INVALID
        whole = 300_000 // 4096 * 4096  # pages
        engine.submit(20, [(data, whole, 0)], bytes(12), timeout=60)  # it goes on
    assert not list((tmp_path / "run").glob("step-0000000010*"))


def test_a_file_too_large_for_the_system_is_refused(tmp_path):
    opened(tmp_path, file_size=LONGEST).close()
    with pytest.raises(vb.EngineFault, match=f"file_size: expected 1 to {LONGEST} bytes.*found {LONGEST + 1}"):
        opened(tmp_path, file_size=LONGEST + 1)


@pytest.mark.parametrize("side", [2**63, 2**64 - 1])
def test_more_room_than_memory_can_have_is_refused(tmp_path, side):
    with opened(tmp_path, file_size=300_000) as engine:
        with pytest.raises(vb.EngineFault, match=f"side bytes.* {side}") as caught:
            engine.plan([(0, 300_000, 0)], 0, side)
        assert caught.value.code == vb.INVALID


def test_wrong_length_of_an_id_is_named(tmp_path):
    with pytest.raises(ValueError, match="attempt: expected 16 bytes; found 3"):
        vb.commit(tmp_path, 1, b"abc")


def test_the_engine_counts_what_it_does(tmp_path):
    data = content.model_bytes(1, 10, 300_000)
    with opened(tmp_path, file_size=300_000) as engine:
        before = engine.stats()
        engine.submit(10, [(data, 300_000, 0)], content.private_bytes(1, 10, 0), timeout=60)
        engine.drain(60)
        after = engine.stats()
    assert before["external"]["direct_bytes"] == before["looks"] == before["waits"] == 0
    external, local = after["external"], after["local"]
    assert external["direct_bytes"] + external["cached_bytes"] > 300_000 and external["syncs"] >= 4
    assert local["metadata"] > 0 and after["looks"] >= 1 and after["pause_s"] >= 0
    assert after["threads"]["df-writer"] >= before["threads"].get("df-writer", 0) >= 0  # at first it may not run yet
    assert set(after["threads"]) > {"df-commit", "df-transfer", "df-publish"}


def test_stats_of_another_version_s_size_are_filled_as_far_as_both_know(tmp_path):
    with opened(tmp_path, file_size=8192) as engine:
        engine.submit(10, [(content.model_bytes(1, 10, 8192), 8192, 0)], content.private_bytes(1, 10, 0), timeout=60)
        engine.drain(60)
        known = _table.CStats.local_names.offset + 8
        for size in (known, ctypes.sizeof(_table.CStats), ctypes.sizeof(_table.CStats) + 16):
            room = (ctypes.c_uint8 * (ctypes.sizeof(_table.CStats) + 32))(*[7] * (ctypes.sizeof(_table.CStats) + 32))
            found = ctypes.cast(room, ctypes.POINTER(_table.CStats))
            found.contents.struct_size = size
            assert library().df_engine_stats(engine._handle, found) == vb.OK
            assert found.contents.struct_size == size and found.contents.looks > 0
            assert bytes(room[size:]) == b"\7" * (len(room) - size), "beyond what the caller has"
            assert not any(room[ctypes.sizeof(_table.CStats) : size]), "unknown to the library: zero"
        found.contents.struct_size = 4
        assert library().df_engine_stats(engine._handle, found) == vb.INVALID
    with pytest.raises(vb.EngineFault, match="closed"):
        engine.stats()
