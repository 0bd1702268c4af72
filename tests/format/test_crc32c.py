"""The checksum without google-crc32c is the same one, and fast enough to read by."""

import sys
import time

import google_crc32c
import numpy as np
import pytest

from deepfreeze.format import crc32c
from tests.support import processes

# Around every size at which something changes: words, folds, blocks.
SIZES = [*range(70), *(edge + n for edge in (1 << 12, 1 << 18, 1 << 19) for n in range(-5, 6))]


def test_it_is_the_one_of_the_format_document():
    """RFC 3720's test vectors."""
    vectors = {
        bytes(32): 0x8A9136AA,
        b"\xff" * 32: 0x62A8AB43,
        bytes(range(32)): 0x46DD794E,
        bytes(reversed(range(32))): 0x113FDB5C,
        b"123456789": 0xE3069283,
        b"": 0,
    }
    for data, wanted in vectors.items():
        assert crc32c.value_by_numpy(data) == wanted == crc32c.value(data)


def test_it_agrees_with_google_s_at_every_size():
    data = np.random.default_rng(0).integers(0, 256, max(SIZES), np.uint8).tobytes()
    for size in SIZES:
        for part in (data[:size], data[len(data) - size :]):
            assert crc32c.value_by_numpy(part) == google_crc32c.value(part), size


def test_it_goes_on_from_any_cut():
    rng = np.random.default_rng(1)
    data = rng.integers(0, 256, 700_000, np.uint8).tobytes()
    for _ in range(20):
        size = int(rng.integers(0, len(data)))
        cuts = sorted(int(at) for at in rng.integers(0, size + 1, 4))
        crc = 0
        for begin, end in zip([0, *cuts], [*cuts, size], strict=True):
            crc = crc32c.extend_by_numpy(crc, data[begin:end])
        assert crc == google_crc32c.value(data[:size])


@pytest.mark.parametrize("make", [bytes, bytearray, memoryview, lambda b: np.frombuffer(b, "<u4").reshape(4, -1)])
def test_it_takes_whatever_has_bytes(make):
    data = np.random.default_rng(2).bytes(4096)
    assert crc32c.value_by_numpy(make(data)) == google_crc32c.value(data)
    assert isinstance(crc32c.value_by_numpy(make(data)), int)


@pytest.mark.timing
def test_it_is_fast_enough_to_read_by():
    """150 to 400 MB/s alone on a machine, a loop over bytes 5; the bound leaves room for a crowd."""
    data = np.random.default_rng(3).bytes(8 << 20)
    crc32c.value_by_numpy(data[: 1 << 19])  # makes the tables
    seconds = []
    for _ in range(5):
        begun = time.process_time()  # others may be at work here
        crc32c.value_by_numpy(data)
        seconds.append(time.process_time() - begun)
    assert min(seconds) < len(data) / 40e6


@pytest.mark.parametrize(
    ("prepare", "wanted"),
    [
        ("", "google"),
        ("sys.modules['google_crc32c'] = None", "numpy"),
        ("sys.modules['google_crc32c._crc32c'] = None; warnings.simplefilter('ignore')", "numpy"),
    ],
    ids=["compiled", "not-installed", "in-Python-alone"],
)
def test_google_s_is_used_where_it_is_there_and_compiled(prepare, wanted):
    code = (
        f"import sys, warnings; {prepare}\n"
        "from deepfreeze.format import crc32c\n"
        "print('numpy' if crc32c.extend is crc32c.extend_by_numpy else 'google', crc32c.value(b'123456789'))"
    )
    done = processes.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == [wanted, str(0xE3069283)], done.stderr
