"""How much memory of the node a training may take, and where it keeps its slots therefore."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

MIB = 1 << 20


@contextmanager
def cgroup(limit: int):
    """A control group of the machine's own with a limit on memory; yields the file that a process joins it by."""
    lines = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    mine = {controllers: path for _, controllers, path in lines}
    if "memory" in mine:
        parent, name = Path("/sys/fs/cgroup/memory" + mine["memory"]), "memory.limit_in_bytes"
    else:
        parent, name = Path("/sys/fs/cgroup" + mine.get("", "/")), "memory.max"
    folder = parent / f"deepfreeze-test-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made below {parent}: {error.strerror}")
    try:
        try:
            (folder / name).write_text(str(limit))
        except OSError as error:
            pytest.skip(f"{folder / name} can't be set: {error.strerror}")
        yield folder / "cgroup.procs"
    finally:
        folder.rmdir()


def chosen(need: int, joins: Path | None = None) -> str:
    """What a process chooses that keeps ``need`` bytes, in that control group."""
    code = f"from deepfreeze.freeze import local_tier; print(local_tier.choose('auto', {need}))"
    first = f"echo $$ > {joins} && " if joins is not None else ""
    command = ["sh", "-c", first + 'exec "$0" -c "$1"', sys.executable, code]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_the_memory_limit_of_a_job_bounds_what_it_keeps_in_memory():
    if chosen(256 * MIB) != "/dev/shm":
        pytest.skip("this machine has less than 512 MiB of memory to spare")
    with cgroup(320 * MIB) as joins:
        assert chosen(64 * MIB, joins) == "/dev/shm"
        assert chosen(256 * MIB, joins) != "/dev/shm", "the job would be killed by its own memory"
