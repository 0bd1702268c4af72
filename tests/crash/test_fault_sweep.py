"""Each call of the engine to the system fails once, in every way that calls fail (native/testing/fault_sweep_test.cc)."""

import re
import subprocess
from pathlib import Path

import pytest

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
ON_NETWORK = ("fail=EIO", "fail=ESTALE", "delay=5")


def test_each_call_that_fails_costs_at_most_one_checkpoint(testing_library, record_property):
    done = subprocess.run(
        [Path(testing_library).with_name("fault_sweep_test")], capture_output=True, text=True, timeout=600
    )
    print(done.stdout)
    points = {name: int(calls) for name, calls in re.findall(r"^(.*): (\d+) calls", done.stdout, re.MULTILINE)}
    passed = sum(points.values())
    more = "" if done.returncode == 0 else ", and then one that failed"
    record_property("points", f"fault sweep: {passed} of {passed} points passed{more}, in {len(points)} ways")
    assert done.returncode == 0, done.stderr
    assert passed > 3000
    for rank, actions in {
        "rank 0 of 1": ("fail=EIO", "fail=ENOSPC", "fail=EDQUOT", "fail=EINTR", "short", "delay=5", "no-memory"),
        "rank 0 of 1, captured": ("fail=EIO", "fail=ENOSPC", "short"),
        "rank 0 of 3": FOR_RANKS,
        "rank 1 of 3": FOR_RANKS,
        "rank 1 of 3, captured": ("fail=EIO",),
        "rank 0 of 3, network": ON_NETWORK,
        "rank 1 of 3, network": ON_NETWORK,
    }.items():
        assert {f"{action}, {rank}" for action in actions} <= points.keys()
    for rank in ("rank 0 of 1", "rank 0 of 1, captured", "rank 0 of 3"):
        (line,) = re.findall(rf"^operations of {rank}: (.*)$", done.stdout, re.MULTILINE)
        counts = dict(zip(line.split()[::2], map(int, line.split()[1::2]), strict=True))
        assert min(counts[name] for name in ("rename", "fsync_dir", "fdatasync", "fsync", "pwrite", "unlink")) > 0


def test_calls_that_a_signal_interrupts_are_made_again(testing_library):
    subprocess.run([Path(testing_library).with_name("interrupt_test")], check=True, timeout=300)


def test_direct_writes_that_are_refused_to_several_writers_at_once_are_made_again(testing_library):
    subprocess.run([Path(testing_library).with_name("direct_test")], check=True, timeout=300)


def test_memory_that_runs_out_at_any_allocation_of_a_thread_ends_no_process(testing_library, record_property):
    done = subprocess.run(
        [Path(testing_library).with_name("no_memory_test")], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    points = sum(map(int, re.findall(r": (\d+) allocations$", done.stdout, re.MULTILINE)))
    record_property("points", f"no memory: {points} allocations on the engine's threads")
    assert points > 2000


def test_an_error_of_the_store_that_passes_costs_no_checkpoint_and_a_failed_sync_does_at_once(testing_library):
    subprocess.run([Path(testing_library).with_name("retry_test")], check=True, timeout=600)
