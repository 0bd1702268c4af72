"""What a newer version of DeepFreeze has written is refused by name: never passed by, never cleared."""

import struct

import pytest

from deepfreeze.errors import CorruptError
from deepfreeze.notices import unheard
from deepfreeze.store.run import Run
from deepfreeze.tiers import leftovers, rescue
from tests.support import files

NEXT = struct.pack("<I", 3)


def as_newer(data: bytes, header: int) -> bytes:
    """The same with version 3 and a right checksum at the end of the header."""
    body = data[:8] + NEXT + data[12 : header - 4]
    return body + struct.pack("<I", files.crc(body)) + data[header:]


def test_a_newer_slot_stops_the_start_and_stays_where_it_is(tmp_path):
    identity = files.identity(structure="ab" * 32, step=40, rank=0, world=1, file_size=100, extents=1)
    place = tmp_path / "rank-00000-0.slot"
    place.write_bytes(as_newer(files.slot(identity, [(0, b"x" * 100)]), 4096))
    tmp_path.chmod(0o700)
    with pytest.raises(CorruptError, match=r"version 3.*newer") as caught:
        leftovers.leftover_slots(tmp_path, unheard)
    assert caught.value.where == str(place) and place.exists()


def test_a_slot_whose_version_is_only_damaged_is_no_newer_one(tmp_path):
    identity = files.identity(structure="ab" * 32, step=40, rank=0, world=1, file_size=100, extents=1)
    data = files.slot(identity, [(0, b"x" * 100)])
    (tmp_path / "rank-00000-0.slot").write_bytes(data[:8] + NEXT + data[12:])
    tmp_path.chmod(0o700)
    assert leftovers.leftover_slots(tmp_path, unheard) == []


def test_a_newer_record_in_a_partial_directory_stops_the_start(tmp_path):
    """A newer version's record in a partial directory stops the start, and nothing is cleared."""
    run = Run.open(files.write_run(tmp_path))
    made = files.sample(world=1)
    folder = files.write_partial(tmp_path, 40, made, [0])
    record = folder / "rank-00000.record"
    record.write_bytes(as_newer(record.read_bytes(), record.stat().st_size))
    with pytest.raises(CorruptError, match=r"version 3.*newer"):
        rescue.plan(run, [])
    assert record.exists()
