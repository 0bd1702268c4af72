"""Each call of the engine to the system fails once, in every way that calls fail (native/testing/fault_sweep_test.cc)."""

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support import processes

pytestmark = pytest.mark.crash
FOR_RANKS = (
    "fail=EIO",
    "fail=ENOSPC",
    "fail=ENOSPC for good",
    "short",
    "delay=5",
    "lose",
    "delay=150, bound 50",
    "after=EIO",
)
WITHOUT_FILES = {"no-memory"}  # has nothing to do with a file system
ON_NETWORK = ("fail=EIO", "fail=ESTALE", "delay=5")


def sweep(program: Path, points: Any) -> subprocess.CompletedProcess:
    """Runs a program of the native tests over the points that are due (native/testing/points.h)."""
    variables = {"DEEPFREEZE_TEST_EVERY": str(points.every), "DEEPFREEZE_TEST_FIRST": str(points.first)}
    return processes.run([program], env={**os.environ, **variables}, capture_output=True, text=True, timeout=600)


def at_least(all_points: int, ways: int, points: Any) -> int:
    """How many are due of more than so many points in so many ways: each way begins anew."""
    return all_points if points.every == 1 else all_points // points.every - ways


@pytest.mark.slow
def test_each_call_that_fails_costs_at_most_one_checkpoint(testing_library, record_property, points):
    done = sweep(Path(testing_library).with_name("fault_sweep_test"), points)
    print(done.stdout)
    tried = {name: int(calls) for name, calls in re.findall(r"^(.*): (\d+) calls", done.stdout, re.MULTILINE)}
    passed = sum(tried.values())
    outcome = "all passed" if done.returncode == 0 else "and then one that failed"
    record_property("points", f"fault sweep, {points}: {passed}, in {len(tried)} ways, {outcome}")
    assert done.returncode == 0, done.stderr
    assert passed > at_least(3000, len(tried), points) and min(tried.values()) > 0
    if points.every == 1:  # in make test a part of them is enough
        for rank in ("rank 0 of 1", "rank 0 of 1, captured", "rank 0 of 3", "rank 1 of 3", "rank 1 of 3, captured"):
            ways = {name.removesuffix(f", {rank}") for name in tried if name.endswith(f", {rank}")} - WITHOUT_FILES
            assert ways and {f"{way}, {rank}, network" for way in ways} <= tried.keys()
    for rank, actions in {
        "rank 0 of 1": ("fail=EIO", "fail=ENOSPC", "fail=EDQUOT", "fail=EINTR", "short", "delay=5", "no-memory"),
        "rank 0 of 1, captured": ("fail=EIO", "fail=ENOSPC", "short"),
        "rank 0 of 3": FOR_RANKS,
        "rank 1 of 3": FOR_RANKS,
        "rank 1 of 3, captured": ("fail=EIO",),
        "rank 0 of 3, network": ON_NETWORK,
        "rank 1 of 3, network": ON_NETWORK,
    }.items():
        assert {f"{action}, {rank}" for action in actions} <= tried.keys()
    for rank in ("rank 0 of 1", "rank 0 of 1, captured", "rank 0 of 3"):
        (line,) = re.findall(rf"^operations of {rank}: (.*)$", done.stdout, re.MULTILINE)
        counts = dict(zip(line.split()[::2], map(int, line.split()[1::2]), strict=True))
        assert min(counts[name] for name in ("rename", "fsync_dir", "fdatasync", "fsync", "pwrite", "unlink")) > 0


def test_calls_that_a_signal_interrupts_are_made_again(testing_library):
    processes.run([Path(testing_library).with_name("interrupt_test")], check=True, timeout=300)


def test_direct_writes_refused_to_several_writers_are_made_again(testing_library):
    """Direct writes that the system refuses to several writers at once are made again."""
    processes.run([Path(testing_library).with_name("direct_test")], check=True, timeout=300)


@pytest.mark.slow
def test_memory_that_runs_out_at_any_allocation_ends_no_process(testing_library, record_property, points):
    """Memory that runs out at any allocation of the engine's threads ends no process."""
    done = sweep(Path(testing_library).with_name("no_memory_test"), points)
    assert done.returncode == 0, done.stderr
    tried = [int(number) for number in re.findall(r": (\d+) allocations$", done.stdout, re.MULTILINE)]
    record_property("points", f"no memory, {points}: {sum(tried)} allocations on the engine's threads, all passed")
    assert sum(tried) > at_least(2000, len(tried), points) and len(tried) == 10


@pytest.mark.slow
def test_an_error_that_passes_costs_no_checkpoint_a_failed_sync_does(testing_library):
    """An error of the store that passes costs no checkpoint; a failed sync fails its step at once."""
    processes.run([Path(testing_library).with_name("retry_test")], check=True, timeout=600)
