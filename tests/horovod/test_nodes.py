"""Three nodes with names, addresses, memories and mounts of their own, on a parallel file system: tests/support/cluster.py."""

import json
import sys
from pathlib import Path

import pytest

from tests.support import cluster, jobs, processes

pytestmark = [pytest.mark.ranks, pytest.mark.tensorflow, pytest.mark.full]
EVERY = 4


def namespaces():
    return processes.run(["ip", "netns", "list"], capture_output=True, text=True).stdout


def mounts():
    return Path("/proc/self/mounts").read_text()


def test_a_job_goes_on_with_three_nodes_and_with_two_when_one_is_lost(tmp_path):
    """A node's processes are killed and its memory is emptied; the job goes on with all nodes and then without that one. Every checkpoint
    on GlusterFS is sound, and nothing of the cluster is left on the machine."""
    if why := cluster.lacks():
        pytest.skip(why)
    before = mounts(), namespaces()
    command = [*cluster.SANDBOX, sys.executable, jobs.JOBS / "three_nodes.py", tmp_path, EVERY]
    done = processes.run(command, env=cluster.environment(), capture_output=True, text=True, timeout=800)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    found = json.loads(done.stdout.splitlines()[-1])
    lost_at, steps = found["lost at"], found["steps"]
    assert lost_at >= 2 * EVERY
    first, second, third = found["attempts"]
    assert first == [3, "node1", None] and second[:2] == [3, "node1"] and third[:2] == [2, "node1"]
    assert second[2] >= lost_at and third[2] == second[2] + 2 * EVERY, "nothing that was committed is lost"
    assert steps == list(range(EVERY, third[2] + 2 * EVERY + 1, EVERY))
    assert all(found["sound"]) and not found["left"]
    assert (mounts(), namespaces()) == before
