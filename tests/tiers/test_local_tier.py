"""How much memory of the node a training may take, and where it keeps its slots therefore."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from deepfreeze.tiers import node_memory
from tests.support import processes

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
    code = f"from deepfreeze.tiers import tiers; print(tiers.choose('auto', {need})[1])"
    first = f"echo $$ > {joins} && " if joins is not None else ""
    command = ["sh", "-c", first + 'exec "$0" -c "$1"', sys.executable, code]
    return processes.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_the_memory_limit_of_a_job_bounds_what_it_keeps_in_memory():
    if chosen(256 * MIB) != "/dev/shm":
        pytest.skip("this machine has less than 512 MiB of memory to spare")
    with cgroup(320 * MIB) as joins:
        assert chosen(64 * MIB, joins) == "/dev/shm"
        assert chosen(256 * MIB, joins) != "/dev/shm", "the job would be killed by its own memory"


GIB = 1 << 30
VERSION_2 = "35 24 0:30 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate"
VERSION_1 = "32 31 0:29 / /sys/fs/cgroup/memory rw shared:5 master:2 - cgroup cgroup rw,memory"
UNIFIED = "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw"
OTHER_MOUNTS = (
    "22 27 0:21 / /proc rw - proc proc rw\n40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd"
)
UNLIMITED = 9223372036854771712


def machine(root: Path, mounts: str, groups: str, free: int = 200 * GIB) -> Path:
    """A root directory with what the kernel would show there."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/meminfo").write_text(f"MemTotal: {400 * GIB >> 10} kB\nMemAvailable: {free >> 10} kB\n")
    (root / "proc/self/mountinfo").write_text(f"{OTHER_MOUNTS}\n{mounts}\n")
    (root / "proc/self/cgroup").write_text(groups + "\n")
    return root


def limit(root: Path, folder: str, most: object, used: int, inactive: int = 0) -> None:
    """A control group; of version 1 if it lies below a folder ``memory``."""
    group = root / "sys/fs/cgroup" / folder
    group.mkdir(parents=True, exist_ok=True)
    old = folder.split("/")[0] == "memory"
    (group / ("memory.limit_in_bytes" if old else "memory.max")).write_text(f"{most}\n")
    (group / ("memory.usage_in_bytes" if old else "memory.current")).write_text(f"{used}\n")
    name = "total_inactive_file" if old else "inactive_file"
    (group / "memory.stat").write_text(f"anon 1\ninactive_anon 7\n{name} {inactive}\nfile 9\n")


def test_without_limits_it_is_what_the_node_has_free(tmp_path):
    root = machine(tmp_path, VERSION_2, "0::/user.slice")
    limit(root, "user.slice", "max", 50 * GIB)
    assert node_memory.available(root) == 200 * GIB


def test_the_limit_of_a_batch_job_holds_and_of_all_above_it_the_tightest(tmp_path):
    job = "system.slice/slurmstepd.scope/job_7"
    root = machine(tmp_path, VERSION_2, f"0::/{job}/step_0/user/task_1")
    limit(root, f"{job}/step_0/user/task_1", "max", 1 * GIB)
    limit(root, f"{job}/step_0", 64 * GIB, 3 * GIB)
    limit(root, job, 64 * GIB, 24 * GIB)  # another step of the job holds memory too
    assert node_memory.available(root) == 40 * GIB


def test_a_page_cache_that_can_be_taken_back_is_free(tmp_path):
    root = machine(tmp_path, VERSION_2, "0::/job")
    limit(root, "job", 64 * GIB, 60 * GIB, inactive=50 * GIB)
    assert node_memory.available(root) == 54 * GIB


def test_a_node_that_has_less_than_the_limit_has_less(tmp_path):
    root = machine(tmp_path, VERSION_2, "0::/job", free=8 * GIB)
    limit(root, "job", 64 * GIB, 1 * GIB)
    assert node_memory.available(root) == 8 * GIB


def test_a_job_that_is_over_its_limit_has_nothing(tmp_path):
    root = machine(tmp_path, VERSION_2, "0::/job")
    limit(root, "job", 4 * GIB, 5 * GIB)
    assert node_memory.available(root) == 0


@pytest.mark.parametrize("mounts", [VERSION_1, f"{VERSION_1}\n{UNIFIED}"], ids=["version-1", "both-versions"])
def test_version_1_is_read_where_the_memory_is_its(tmp_path, mounts):
    root = machine(tmp_path, mounts, "9:name=systemd:/x\n4:cpuset,memory:/slurm/uid_0/job_7\n1:cpu:/other\n0::/slurm")
    limit(root, "memory", UNLIMITED, 90 * GIB)
    limit(root, "memory/slurm/uid_0", UNLIMITED, 9 * GIB)
    limit(root, "memory/slurm/uid_0/job_7", 64 * GIB, 12 * GIB, inactive=2 * GIB)
    assert node_memory.available(root) == 54 * GIB


@pytest.mark.parametrize(
    ("mounts", "group"),
    [
        ("35 24 0:30 / /sys/fs/cgroup ro - cgroup2 cgroup rw", "/"),
        ("35 24 0:30 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw", "/docker/abc"),
        ("35 24 0:30 / /sys/fs/cgroup ro - cgroup2 cgroup rw", "/../../kubepods/other"),
        ("35 24 0:30 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw", "/elsewhere"),
    ],
    ids=["a-namespace-of-its-own", "a-part-is-mounted", "outside-of-the-namespace", "outside-of-what-is-mounted"],
)
def test_a_container_sees_its_limit_at_the_top(tmp_path, mounts, group):
    root = machine(tmp_path, mounts, f"0::{group}")
    limit(root, ".", 16 * GIB, 4 * GIB)
    assert node_memory.available(root) == 12 * GIB


def test_a_container_of_version_1_sees_its_limit_at_the_top(tmp_path):
    mount = "32 31 0:29 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory"
    root = machine(tmp_path, mount, "4:memory:/docker/abc")
    limit(root, "memory", 16 * GIB, 4 * GIB)
    assert node_memory.available(root) == 12 * GIB


def test_a_mount_point_with_a_blank_is_found(tmp_path):
    root = machine(tmp_path, r"35 24 0:30 / /sys/fs/cgroup/a\040b rw - cgroup2 cgroup2 rw", "0::/job")
    limit(root, "a b/job", 16 * GIB, 4 * GIB)
    assert node_memory.available(root) == 12 * GIB


def test_a_system_without_any_of_these_files_has_nothing_to_give(tmp_path):
    assert node_memory.available(tmp_path) == 0


def test_what_is_mounted_as_memory_is_told_from_a_disk(tmp_path):
    device = os.stat("/dev/shm").st_dev
    mount = f"25 24 {os.major(device)}:{os.minor(device)} / /dev/shm rw - {{}} none rw"
    for kind, memory in (("tmpfs", True), ("ext4", False)):
        root = machine(tmp_path / kind, mount.format(kind), "0::/")
        assert node_memory.is_memory(Path("/dev/shm"), root) == memory
