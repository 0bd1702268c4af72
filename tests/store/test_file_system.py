"""The file system that a run is on, by name, as /proc/self/mountinfo tells it."""

import pytest

from deepfreeze.format.strict_json import is_printable
from deepfreeze.store import file_system

MOUNTS = r"""21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
22 21 0:5 / /proc rw - proc proc rw
30 21 0:40 / /scratch rw master:3 propagate_from:2 - lustre 10.0.0.1@tcp:/scratch rw
31 30 0:41 /runs /scratch/runs rw - nfs4 server:/runs rw
32 21 0:42 / /scratch2 rw - xfs /dev/sdb1 rw
33 21 0:43 / /with\040blank rw - gpfs fs1 rw
34 21 0:44 / /twice rw - tmpfs first rw
35 21 0:45 / /twice rw - beegfs second rw
36 21 0:46 / /tab\011and\134ä rw - tmpfs tmpfs rw
a line that is none
"""


@pytest.fixture
def mounts(tmp_path, monkeypatch):
    file = tmp_path / "mountinfo"
    file.write_text(MOUNTS)
    monkeypatch.setattr(file_system, "_MOUNTS", file)
    return file


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/", "ext4 at /"),
        ("/home/runs/nt3", "ext4 at /"),
        ("/scratch", "lustre at /scratch"),
        ("/scratch/mine/../nt3", "lustre at /scratch"),
        ("/scratch/runs/nt3", "nfs4 at /scratch/runs"),
        ("/scratch/runs2", "lustre at /scratch"),
        ("/scratch2/nt3", "xfs at /scratch2"),
        ("/with blank/nt3", "gpfs at /with blank"),
        ("/twice/nt3", "beegfs at /twice"),
    ],
)
def test_a_directory_has_the_file_system_that_is_mounted_nearest_above(mounts, path, name):
    """It need not exist. A mount hides those at its place that came before it."""
    assert file_system.named(path) == name


def test_a_link_is_followed(mounts, tmp_path):
    (tmp_path / "link").symlink_to("/scratch/runs")
    assert file_system.named(tmp_path / "link" / "nt3") == "nfs4 at /scratch/runs"


def test_a_name_is_printable_ascii(mounts):
    """It stands in plan.json, which takes no other, and is compared from job to job."""
    assert file_system.named("/tab\tand\\ä/nt3") == r"tmpfs at /tab\tand\\\xe4"
    assert is_printable(file_system.named("/tab\tand\\ä"))


def test_a_system_that_does_not_tell_has_an_unknown_one(mounts, tmp_path):
    mounts.write_text("a line that is none\n\n1 2 3 4\n")
    assert file_system.named(tmp_path) == "unknown"
    mounts.unlink()
    assert file_system.named(tmp_path) == "unknown"


def test_the_name_of_this_systems_root_stays_the_same():
    name = file_system.named("/")
    assert name == file_system.named("/") and name.endswith(" at /")
