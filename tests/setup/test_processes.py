"""The tests' children: none outlives its test, and who fails or hangs is shown with what it printed."""

import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.support import jobs, processes
from tests.support.ranks import until

# Starts a process in a session of its own, as launchers do, says which, and waits.
LAUNCHER = """
import subprocess, sys, time
inner = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"], start_new_session=True)
print(inner.pid, flush=True)
time.sleep(600)
"""


def test_at_the_end_nobody_of_the_family_is_left_in_whatever_session():
    with processes.child([sys.executable, "-S", "-c", LAUNCHER], stdout=subprocess.PIPE, text=True) as process:
        inner = int(process.stdout.readline())
        assert processes.lives(inner) and os.getsid(inner) != os.getsid(process.pid)
    assert not processes.lives(process.pid)
    until(lambda: not processes.lives(inner))  # whose parent is now another


def test_a_child_dies_with_the_process_that_started_it():
    code = "from tests.support import processes\nwith processes.child(['sleep', '600']) as child:\n"
    code += "    print(child.pid, flush=True)\n    child.wait()\n"
    with processes.child([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=jobs.ROOT) as process:
        inner = int(process.stdout.readline())
        until(lambda: b"sleep" in open(f"/proc/{inner}/cmdline", "rb").read().split(b"\0")[0])
        os.kill(process.pid, signal.SIGKILL)
        until(lambda: not processes.lives(inner))


def test_no_test_starts_a_process_that_may_outlive_it():
    """Tests start processes by tests/support alone, which kills the whole family at a test's end, and sets a limit of time."""
    starts = re.compile(
        r"^(?!inner = ).*\b(subprocess\.(run|call|check_call|check_output|Popen)|os\.(system|popen|spawn\w*))\(", re.M
    )
    support = jobs.ROOT / "tests" / "support"
    files = [file for file in (jobs.ROOT / "tests").rglob("*.py") if support not in file.parents]
    assert len(files) > 100
    assert [str(file) for file in files if starts.search(file.read_text())] == []


def test_a_command_that_hangs_is_ended_when_its_time_is_over():
    with pytest.raises(subprocess.TimeoutExpired):
        processes.run(["sleep", "600"], timeout=0.1)


@pytest.mark.ranks
def test_a_job_that_fails_shows_each_ranks_own_last_lines(tmp_path):
    script = tmp_path / "job.py"
    script.write_text(
        "import os, sys\nrank = os.environ['OMPI_COMM_WORLD_RANK']\nsys.exit(f'the end of rank {rank}')\n"
    )
    with pytest.raises(AssertionError) as failed:
        jobs.run(script, ranks=2)
    shown = [part.partition(":\n") for part in str(failed.value).split("--- rank-")[1:]]
    assert any(who.startswith("0 ") and "the end of rank 0" in text for who, _, text in shown) or any(
        who.startswith("1 ") and "the end of rank 1" in text for who, _, text in shown
    )


@pytest.mark.ranks
def test_a_job_that_hangs_shows_each_ranks_own_last_lines(tmp_path):
    script = tmp_path / "job.py"
    script.write_text(
        "import os, time\nprint('waits:', os.environ['OMPI_COMM_WORLD_RANK'], flush=True)\ntime.sleep(600)\n"
    )
    with jobs.job(script, ranks=2) as job:
        job.until(lambda: job.output().count("waits: ") == 2)
        with pytest.raises(AssertionError) as failed:
            job.wait(0.1)
        pids = [job.pid(rank) for rank in range(2)]
        launcher = job.process.pid
    assert not Path(tempfile.gettempdir(), f"ompi.{launcher}").exists(), "a later job of this PID would not start"
    text = str(failed.value)
    assert [text.index(f"--- rank-{rank} ") < text.index(f"waits: {rank}") for rank in range(2)] == [True, True]
    until(lambda: not any(map(processes.lives, pids)))
