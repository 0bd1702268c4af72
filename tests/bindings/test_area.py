"""A capture area by itself: what becomes of its memory when the process forks, and when an engine is left behind."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import tempfile
import time

import pytest

import veloc_bindings as vb
from tests.support import content, jobs, processes
from tests.support.ranks import options

pytestmark = pytest.mark.usefixtures("library")
SIZE = 300_000


def opened(tmp_path, **more) -> vb.EmbeddedEngine:
    own = options(tmp_path, file_size=SIZE, **more)
    attempt = content.attempt_id(own.pop("attempt"))
    return vb.EmbeddedEngine.open(run_id=content.RUN_ID, attempt=attempt, structure=content.STRUCTURE, **own)


def captured(area: vb.Area, data: ctypes.Array) -> tuple[int, bool]:
    area.capture(0, [(ctypes.addressof(data), len(data))])
    return area.collect()


def in_a_child(work) -> None:
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.alarm(20)  # ends the child if a call hangs
            work()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0


def test_a_forked_child_is_refused_its_parents_area_and_leaves_it_alone(tmp_path):
    data = (ctypes.c_char * SIZE).from_buffer(content.model_bytes(1, 10, SIZE))
    area, engine = vb.Area(), opened(tmp_path)
    area.set_group(0, [(0, 0, SIZE, 0)])
    captured(area, data)

    def refused():
        calls = {
            "group": lambda: area.set_group(0, [(0, 0, SIZE, 0)]),
            "capture": lambda: area.capture(0, [(ctypes.addressof(data), SIZE)]),
            "collect": area.collect,
            "drop": area.drop,
        }
        for name, call in calls.items():
            with pytest.raises(vb.EngineFault, match=f"{name}: expected .*forked from it") as caught:
                call()
            assert caught.value.code == vb.INVALID
        area.close()
        area.close()
        own = vb.Area()  # a child may have an area of its own
        own.set_group(0, [(0, 0, SIZE, 0)])
        assert captured(own, data)[1]
        own.close()

    in_a_child(refused)
    base, own = captured(area, data)
    assert own and ctypes.string_at(base, SIZE) == data.raw
    engine.submit(10, [(base, SIZE, 0)], content.private_bytes(1, 10, 0), timeout=60)
    engine.wait(10, vb.EXTERNAL, timeout=60)
    area.close()
    engine.close()


@pytest.mark.parametrize("memory", ["area", "engine", "slots"])
def test_captures_lie_where_a_fork_copies_nothing(tmp_path, memory):
    with (
        tempfile.TemporaryDirectory(dir="/dev/shm") as shm,
        opened(tmp_path, local_dir=shm if memory == "slots" else None) as engine,
    ):
        area, places = vb.Area(), [0]
        if memory != "area":
            places = engine.plan([(0, SIZE, 0)], 1)
            engine.attach(area, 60)
        area.set_group(0, [(0, 0, SIZE, places[0])])
        base, _ = captured(area, (ctypes.c_char * SIZE)())
        assert "dc" in _flags(base)  # as MADV_DONTFORK leaves it
        area.close()


def test_reports_have_the_cpu_time_of_the_copies_and_of_the_engine(tmp_path):
    begun = time.process_time()
    with opened(tmp_path) as engine:
        data, area = (ctypes.c_char * SIZE)(), vb.Area()
        area.set_group(0, [(0, 0, SIZE, engine.plan([(0, SIZE, 0)], 1)[0])])
        engine.attach(area, 60)
        reports = []
        for step in (10, 20):
            base, _ = captured(area, data)
            engine.submit(step, [(base, SIZE, 0)], b"p", timeout=60)
            engine.wait(step, vb.EXTERNAL, timeout=60)
            reports += [report for report in engine.poll() if report.step == step][-1:]
        used = time.process_time() - begun
        engine.drain(60)
        threads = sum(engine.stats()["threads"].values())
    assert all(report.copy_s > 0 and report.cpu_s > 0 for report in reports)
    assert sum(report.copy_s + report.cpu_s for report in reports) < used
    assert sum(report.cpu_s for report in reports) <= threads
    area.close()


def _flags(address: int) -> list[str]:
    """VmFlags of the mapping that an address lies in."""
    inside = False
    with open("/proc/self/smaps") as maps:
        for line in maps:
            head = line.split()
            if "-" in head[0] and ":" not in head[0]:
                begin, end = (int(part, 16) for part in head[0].split("-"))
                inside = begin <= address < end
            elif inside and head[0] == "VmFlags:":
                return head[1:]
    raise AssertionError(f"nothing is mapped at {address:#x}")


def test_a_piece_outside_of_a_captures_memory_is_refused(tmp_path):
    """A piece outside of a capture's memory is refused before anything is copied."""
    data = ctypes.create_string_buffer(b"x" * SIZE, SIZE)
    with opened(tmp_path, local_dir=None) as engine:
        area = vb.Area()
        for place in (2**64 - 8, 2**63 - 8):
            with pytest.raises(vb.EngineFault, match="group 0: expected pieces inside of a memory") as caught:
                area.set_group(0, [(0, 0, SIZE, place)])
            assert caught.value.code == vb.INVALID
        area.set_group(0, [(0, 2**64 - 8, 16, 0)])
        with pytest.raises(vb.EngineFault, match="group 0 has no 16 bytes") as caught:
            captured(area, data)
        assert caught.value.code == vb.INVALID
        area.collect()
        place, end = engine.plan([(0, SIZE, 0)], 1)
        engine.attach(area, 60)
        # The last is the first byte behind all that the plan has; memory is given in pages, so it might not even crash.
        for wrong in (end - SIZE + 1, end, 1 << 40):
            area.set_group(0, [(0, 0, SIZE, wrong)])
            with pytest.raises(
                vb.EngineFault, match=f"group 0: expected .* {end} bytes; found {SIZE} bytes at {wrong}"
            ):
                captured(area, data)
        area.set_group(0, [(0, 0, SIZE, place)])
        base, own = captured(area, data)
        assert not own
        engine.submit(10, [(base + place, SIZE, 0)], b"p", timeout=60)
        engine.wait(10, vb.EXTERNAL, timeout=60)
        area.close()


_LEFT_BEHIND = """
import ctypes, os, sys, time
from pathlib import Path
import veloc_bindings as vb
from tests.support import content

run, local, log = sys.argv[1:]
size = 3 << 20
engine = vb.EmbeddedEngine.open(run_id=content.RUN_ID, attempt=bytes(16), structure=content.STRUCTURE, run_dir=run,
                        local_dir=local, file_size=size, commit_timeout=0.2)
area = vb.Area()
area.set_group(0, [(0, 0, size, 0)])
data = ctypes.create_string_buffer(b"x" * size, size)
area.capture(0, [(ctypes.addressof(data), size)])
base, own = area.collect()
assert own
engine.submit(10, [(base, size, 0)])
while not Path(log).exists():  # until the thread is in the write: before it, closing would keep the thread from it
    time.sleep(0.01)
try:
    engine.close()
except vb.EngineFault as fault:
    assert fault.code == vb.TIMEOUT, fault
else:
    raise AssertionError("it closed")
area.drop()
area.close()

def name(task):
    try:
        return (task / "comm").read_text()
    except OSError:  # the thread has ended since its folder was listed
        return ""

def alive():
    return [task for task in Path("/proc/self/task").iterdir() if name(task) == "df-local\\n"]

assert alive()
while alive():
    time.sleep(0.01)
(slot,) = Path(local).glob("*/*/*.slot")
assert b"x" * size in slot.read_bytes(), "it read something else"
"""


@pytest.mark.timing
@pytest.mark.slow
def test_what_a_thread_that_is_left_behind_reads_outlives_the_area(library, tmp_path):
    """The store hangs, so that closing gives up; when it goes on, the thread goes on with the bytes it had begun to write."""
    folders = [tmp_path / "run", tmp_path / "local"]
    for folder in folders:
        folder.mkdir()
    log = tmp_path / "log"
    fault = {"DEEPFREEZE_FAULT": "delay=4000:pwrite:.slot:2", "DEEPFREEZE_FAULT_LOG": str(log)}
    env = jobs.environment(DEEPFREEZE_LIBRARY=library, **fault)
    done = processes.run(
        [sys.executable, "-c", _LEFT_BEHIND, *map(str, folders), str(log)],
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
