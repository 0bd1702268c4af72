"""Reading by several threads, through the page cache and past it: right bytes, every damage found, nothing left running."""

import os
import random
import threading
import time

import google_crc32c
import numpy as np
import pytest

import veloc_bindings
from deepfreeze.errors import CorruptError
from deepfreeze.format.record import EXTENT
from deepfreeze.store import ranges
from deepfreeze.store.posix_ranges import PosixRanges
from deepfreeze.thaw import extents
from deepfreeze.thaw.extents import Extents, Landing

SIZE = 3_000_017


@pytest.fixture
def content():
    return np.frombuffer(np.random.default_rng(0).bytes(SIZE), np.uint8)


@pytest.fixture
def open_source(tmp_path, content):
    """Opens a source of the content, with its bytes cached or not."""
    opened = []

    def make(direct=False, change=None):
        data = content.copy()
        if change is not None:
            data[change] ^= 0x10
        path = tmp_path / "file"
        path.write_bytes(data)
        fd = os.open(path, os.O_RDONLY)
        found = PosixRanges(fd, path)
        opened.append(found)
        if direct:
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            found.past_cache()
        return found

    yield make
    for found in opened:
        found.close()


def cut(content, largest, rng):
    """The content as extents of random sizes."""
    rows, at = [], 0
    while at < SIZE:
        nbytes = min(rng.randint(1, largest), SIZE - at)
        rows.append((at, nbytes, google_crc32c.value(content[at : at + nbytes].tobytes()), 0))
        at += nbytes
    return np.array(rows, EXTENT)


def scatter(count, rng):
    """Landings that don't overlap, some empty, some back to back, some that end with the file."""
    places = sorted(rng.sample(range(SIZE + 1), 2 * count))
    places[-1] = SIZE
    return [
        Landing(f"t{n}", low, np.zeros(high - low, np.uint8))
        for n, (low, high) in enumerate(zip(places[::2], places[1::2], strict=True))
    ] + [Landing("empty", places[1], np.empty(0, np.uint8))]


@pytest.fixture(params=["one thread", "several", "several, without the engine"])
def threads(request, monkeypatch):
    if request.param != "one thread":
        monkeypatch.setattr(extents.os, "sched_getaffinity", lambda pid: range(4))
        monkeypatch.setattr(extents, "_PARALLEL", 0)
        monkeypatch.setattr(extents, "_ALONE", 5000)
        monkeypatch.setattr(extents, "PIECE", 20000)
    if request.param.endswith("engine"):

        def missing(data, crc=0):
            raise veloc_bindings.LibraryError("x", "the native engine", "no such file", "install it")

        monkeypatch.setattr(veloc_bindings, "crc32c", missing)


@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("largest", [300, 9000, 700_000, SIZE])
def test_any_landings_are_filled_bit_exact_from_any_cut(open_source, content, threads, largest, direct):
    rng = random.Random(largest)
    opened = open_source(direct)
    found = Extents(cut(content, largest, rng), opened)
    for count in (1, 3, 40):
        landings = scatter(count, rng)
        found.read(rng.sample(landings, len(landings)))
        for landing in landings:
            assert np.array_equal(landing.data, content[landing.offset : landing.end])


@pytest.mark.parametrize("direct", [False, True])
def test_a_flipped_bit_in_any_wanted_extent_is_found_and_named(open_source, content, threads, direct):
    rng = random.Random(1)
    table = cut(content, 200_000, rng)
    landings = [
        Landing("low", 10, np.empty(1_500_000, np.uint8)),
        Landing("high", 1_600_000, np.empty(SIZE - 1_600_000, np.uint8)),
    ]
    for offset, nbytes, *_ in table.tolist():
        touched = [x for x in landings if x.offset < offset + nbytes and x.end > offset]
        at = rng.randrange(offset, offset + nbytes)
        reading = Extents(table, open_source(direct, change=at))
        if not touched:
            reading.read(landings)
            continue
        with pytest.raises(CorruptError) as caught:
            reading.read(landings)
        assert f"{touched[0].name} (bytes {offset} to {offset + nbytes})" in caught.value.expected


def test_of_small_extents_read_together_each_wanted_one_is_checked(open_source, content, threads):
    """Many small tensors with holes between them: damage names the first tensor of its extent, and in a hole it is nobody's."""
    rng = random.Random(5)
    table = cut(content, 3000, rng)
    landings = sorted(scatter(300, rng)[:-1], key=lambda x: x.offset)
    wanted, holes = [], []
    for offset, nbytes, *_ in table.tolist():
        touched = [x for x in landings if x.offset < offset + nbytes and x.end > offset]
        (wanted if touched else holes).append((offset, nbytes, touched))
    assert len(holes) > 100 and any(len(touched) > 1 for _, _, touched in wanted)
    for offset, nbytes, touched in rng.sample(wanted, 25):
        with pytest.raises(CorruptError) as caught:
            Extents(table, open_source(change=offset + nbytes - 1)).read(landings)
        assert f"{touched[0].name} (bytes {offset} to {offset + nbytes})" in caught.value.expected
    damaged = np.array([offset for offset, _, _ in holes])
    Extents(table, open_source(change=damaged)).read(landings)
    for landing in landings:
        assert np.array_equal(landing.data, content[landing.offset : landing.end])


def test_what_is_not_cached_is_read_past_the_cache(open_source, content, monkeypatch):
    opened = open_source(direct=True)
    if not opened.is_cold(0, SIZE):
        pytest.skip("this file system keeps its files in memory, or does not tell")
    monkeypatch.setattr(opened, "read", lambda into, offset: pytest.fail("read through the page cache"))
    spare = ranges.scratch(70_000)
    for offset, nbytes in [(0, 4096), (1, 70_000), (4096, 65536), (8191, 2), (SIZE - 1, 1), (SIZE - 69_999, 69_999)]:
        assert np.array_equal(opened.fetch(offset, offset + nbytes, spare), content[offset : offset + nbytes])
        for shift in (0, 64):
            into = ranges.scratch(70_000)[shift : shift + nbytes]
            opened.fill(into, offset, spare)
            assert np.array_equal(into, content[offset : offset + nbytes])
    assert opened.is_cold(0, SIZE)


def test_where_direct_reading_fails_the_cache_is_used(open_source, content):
    opened = open_source(direct=True)
    reader, writer = os.pipe()
    os.close(writer)
    os.dup2(reader, opened._direct)  # preadv on a pipe is an error
    os.close(reader)
    landing = Landing("all", 0, np.empty(SIZE, np.uint8))
    Extents(cut(content, 50_000, random.Random(2)), opened).read([landing])
    assert np.array_equal(landing.data, content)


@pytest.mark.timing
def test_leaving_early_gives_up_the_rest_and_leaves_no_thread(open_source, content, monkeypatch):
    monkeypatch.setattr(extents, "_PARALLEL", 0)
    monkeypatch.setattr(extents, "_ALONE", 0)
    opened = open_source()
    done = []
    monkeypatch.setattr(opened, "fill", lambda into, offset, spare: done.append(offset) or time.sleep(0.01))
    table = cut(content, 3000, random.Random(3))
    with pytest.raises(KeyboardInterrupt), Extents(table, opened).start([Landing("all", 0, np.empty(SIZE, np.uint8))]):
        raise KeyboardInterrupt
    assert len(done) < len(table) / 2
    assert not [thread for thread in threading.enumerate() if thread.name == "deepfreeze-read"]


def test_where_no_thread_is_to_be_had_the_caller_reads(open_source, content, monkeypatch):
    def start(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(extents, "_PARALLEL", 0)
    monkeypatch.setattr(threading.Thread, "start", start)
    landing = Landing("all", 0, np.empty(SIZE, np.uint8))
    Extents(cut(content, 50_000, random.Random(4)), open_source()).read([landing])
    assert np.array_equal(landing.data, content)
