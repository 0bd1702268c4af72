"""Each call of the engine to the system fails once, in every way that calls fail (native/testing/fault_sweep_test.cc)."""

import re
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.crash


def test_each_call_that_fails_costs_at_most_one_checkpoint(testing_library):
    done = subprocess.run(
        [Path(testing_library).with_name("fault_sweep_test")], capture_output=True, text=True, timeout=300
    )
    print(done.stdout)
    assert done.returncode == 0, done.stderr
    points = {name: int(calls) for name, calls in re.findall(r"^(.*): (\d+) calls", done.stdout, re.MULTILINE)}
    assert sum(points.values()) > 1500
    for action in ("fail=EIO", "fail=ENOSPC", "fail=EDQUOT", "fail=EINTR", "short", "delay=5", "no-memory"):
        assert any(name.startswith(action) for name in points), action


def test_calls_that_a_signal_interrupts_are_made_again(testing_library):
    subprocess.run([Path(testing_library).with_name("interrupt_test")], check=True, timeout=60)
