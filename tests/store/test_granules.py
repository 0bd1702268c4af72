"""A store tells its granules: pages for most, blocks on GPFS, stripes on Lustre; and what it can't tell is no error."""

import errno
import os
import struct

import pytest

from deepfreeze.store import granules
from deepfreeze.store.granules import Granules
from deepfreeze.store.posix_store import PosixStore
from tests.support.memory_store import MemoryStore

NFS, LUSTRE, GPFS = 0x6969, 0x0BD00BD0, 0x47504653
MIB = 1 << 20


def plain(stripe: int, magic: int = 0x0BD10BD0) -> bytes:
    """A layout as Lustre's client gives it out (lustre_user.h, ``lov_user_md``): magic, pattern, id, stripe size, stripe count, offset."""
    return struct.pack("<II16sIHH", magic, 1, bytes(16), stripe, 8, 0)


def composite(*stripes: int, flags: int = 0x10) -> bytes:
    """A layout of several components (``lov_comp_md_v1``): its head of 32 bytes, an entry of 48 for each, and their layouts."""
    behind = 32 + 48 * len(stripes)
    head = struct.pack("<IIIHH16s", 0x0BD60BD0, behind + 32 * len(stripes), 1, 0, len(stripes), bytes(16))
    entries = [
        struct.pack("<IIQQII16s", n + 1, flags, n * MIB, (n + 1) * MIB, behind + 32 * n, 32, bytes(16))
        for n in range(len(stripes))
    ]
    return b"".join([head, *entries, *map(plain, stripes)])


@pytest.fixture
def lustre(monkeypatch, tmp_path):
    """A function: gives the run, and its run.json, the layouts that it is given; None for no layout."""
    monkeypatch.setattr(granules, "_statfs", lambda path: (LUSTRE, 4096))

    def laid_out(directory: bytes | None, file: bytes | None = None) -> PosixStore:
        layouts = {tmp_path: directory, tmp_path / "run.json": file}

        def getxattr(path, name):
            assert name == "lustre.lov"
            if layouts[path] is None:
                raise OSError(errno.ENODATA, "no data")
            return layouts[path]

        monkeypatch.setattr(os, "getxattr", getxattr)
        return PosixStore(tmp_path)

    return laid_out


def test_an_ordinary_directory_has_pages(tmp_path):
    assert PosixStore(tmp_path).granules() == Granules(4096, None)


def test_a_store_that_says_nothing_of_granules_has_pages(tmp_path):
    assert MemoryStore(tmp_path).granules() == Granules(4096, None)


def test_a_directory_that_is_not_there_has_pages(tmp_path):
    assert PosixStore(tmp_path / "none").granules() == Granules(4096, None)


def test_the_system_s_fields_are_read_as_it_writes_them(tmp_path):
    kind, block = granules._statfs(tmp_path)
    assert block == os.statvfs(tmp_path).f_bsize and kind not in (0, LUSTRE, GPFS)
    assert granules._statfs("/proc")[0] == 0x9FA0


@pytest.mark.parametrize(("kind", "found"), [(GPFS, 4 * MIB), (NFS, 4096)], ids=["gpfs", "nfs"])
def test_a_block_is_one_that_is_locked_and_no_size_of_transfers(monkeypatch, tmp_path, kind, found):
    monkeypatch.setattr(granules, "_statfs", lambda path: (kind, 4 * MIB))
    assert PosixStore(tmp_path).granules() == Granules(found, None)


@pytest.mark.parametrize(
    "layout",
    [plain(4 * MIB), plain(4 * MIB, 0x0BD30BD0), composite(MIB, 4 * MIB), composite(4 * MIB, 65536, 0)],
    ids=["plain", "pool", "composite", "composite-with-default"],
)
def test_lustre_s_stripe_is_the_largest_of_the_directory_s_layout(lustre, layout):
    assert lustre(layout).granules() == Granules(4096, 4 * MIB)


@pytest.mark.parametrize(
    "directory",
    [None, plain(0), composite(MIB, flags=0x40), b"", plain(MIB)[:20], composite(MIB)[:40], b"?" * 64],
    ids=["none", "default", "extension", "empty", "cut", "cut-composite", "unknown"],
)
def test_without_a_layout_of_its_own_the_run_s_file_tells_the_stripe(lustre, directory):
    assert lustre(directory, plain(2 * MIB)).granules() == Granules(4096, 2 * MIB)
    assert lustre(directory, None).granules() == Granules(4096, None)
