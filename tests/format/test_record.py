"""Records and slot headers: golden bytes, and refusal of everything else."""

import struct

import pytest

from deepfreeze.errors import CorruptError
from deepfreeze.format import named_values
from deepfreeze.format.record import Record, SlotHeader
from tests.support import files

# Written out from docs/format.md's tables: rank 1 of 2, step 40, extents of 16 bytes at 32 and 8 at 64, private "seed".
IDENTITY = (
    "00112233445566778899aabbccddeeff" "0123456789abcdef0123456789abcdef" + "ab" * 32 +
    "2800000000000000" "01000000" "02000000" "0010000000000000" "02000000" "00000000"
)  # fmt: skip
RECORD = bytes.fromhex(
    "44465245434f5244" "01000000" "80000000" + IDENTITY +
    "0400000000000000" "b800000000000000"
    "2000000000000000" "1000000000000000" "01000000" "00000000"
    "4000000000000000" "0800000000000000" "efbeadde" "00000000"
    "73656564"
)  # fmt: skip
RECORD_CRC = "0010e3d1"


# Version 2 has 8 bytes more in its header, the size of the named values; here there are two, "a" and "zz_9".
VALUES = bytes.fromhex("85682325010000000300000000000000") + b"axyz"
VALUES += bytes.fromhex("00000000040000000000000000000000") + b"zz_9"
RECORD_2 = bytes.fromhex(
    "44465245434f5244" "02000000" "88000000" + IDENTITY +
    "0400000000000000" "e800000000000000" "2800000000000000"
    "2000000000000000" "1000000000000000" "01000000" "00000000"
    "4000000000000000" "0800000000000000" "efbeadde" "00000000"
    "73656564"
) + VALUES  # fmt: skip


def made(extents=((32, 16, 1), (64, 8, 0xDEADBEEF)), private=b"seed", section=None, **changes):
    values = {"structure": "ab" * 32, "step": 40, "rank": 1, "world": 2, "file_size": 4096, "extents": len(extents)}
    return files.record(files.identity(**{**values, **changes}), list(extents), private, section)


def test_record_bytes_are_those_of_the_format_document():
    data = RECORD + bytes.fromhex(RECORD_CRC)
    assert made() == data
    read = Record.from_bytes(data, "x")
    assert (read.identity.run_id, read.identity.attempt) == (files.RUN_ID, files.ATTEMPT)
    assert (read.identity.step, read.identity.rank, read.identity.world_size) == (40, 1, 2)
    assert (read.identity.structure, read.identity.file_size) == ("ab" * 32, 4096)
    assert read.extents[["offset", "nbytes", "crc32c"]].tolist() == [(32, 16, 1), (64, 8, 0xDEADBEEF)]
    assert (read.private, read.size, read.nbytes) == (b"seed", 184, 24)


def test_record_bytes_of_version_2_are_those_of_the_format_document():
    data = RECORD_2 + struct.pack("<I", files.crc(RECORD_2))
    assert files.section(a=b"xyz", zz_9=b"") == VALUES == named_values.encode({"zz_9": b"", "a": b"xyz"})
    assert made(section=VALUES) == data
    read = Record.from_bytes(data, "x")
    assert read.values == {"a": b"xyz", "zz_9": b""} and (read.values_size, read.size) == (40, 232)
    assert (read.private, read.nbytes) == (b"seed", 24)
    assert Record.from_bytes(made(section=b""), "x").values == {}


@pytest.mark.parametrize("mask", [0x01, 0x80])
def test_a_record_of_version_2_with_a_byte_changed_or_cut_is_corrupt(mask):
    data = made(section=files.UNKNOWN)
    for at in range(len(data)):
        wrong = bytearray(data)
        wrong[at] ^= mask
        for damaged in (bytes(wrong), data[:at]):
            with pytest.raises(CorruptError):
                Record.from_bytes(damaged, "x")


@pytest.mark.parametrize(
    "section",
    [
        files.section(b=b"") + files.section(a=b""),
        files.section(a=b"") * 2,
        files.section(A=b""),
        files.section(**{"": b"x"}),
        files.section(**{"a" * 65: b"x"}),
        files.section(a=b"x")[:-1],
        files.section(a=b"x") + b"\0",
        bytes(15),
        struct.pack("<IIQ", 0, 1, 2**64 - 1) + b"a",
        struct.pack("<IIQ", 0, 2**32 - 1, 2**64 - 1) + b"a",
        struct.pack("<IIQ", 1, 1, 1) + b"ax",
    ],
)
def test_a_section_that_is_none_makes_its_record_corrupt(section):
    with pytest.raises(CorruptError):
        Record.from_bytes(made(section=section), "x")


def test_a_name_that_could_not_be_read_back_is_not_written():
    for name in ("", "A", "a b", "a" * 65, "\u00e9"):
        with pytest.raises(ValueError, match="is no name of a value"):
            named_values.encode({name: b""})


def test_a_rank_without_bytes_has_a_record_all_the_same():
    assert Record.from_bytes(made(extents=(), private=b""), "x").nbytes == 0


def test_a_record_cut_short_anywhere_is_corrupt():
    data = made()
    for length in range(len(data)):
        with pytest.raises(CorruptError):
            Record.from_bytes(data[:length], "x")
    with pytest.raises(CorruptError):
        Record.from_bytes(data + b"\0", "x")


@pytest.mark.parametrize("mask", [0x01, 0x80, 0xFF])
def test_a_record_with_any_byte_changed_is_corrupt(mask):
    data = made()
    for at in range(len(data)):
        wrong = bytearray(data)
        wrong[at] ^= mask
        with pytest.raises(CorruptError):
            Record.from_bytes(bytes(wrong), "x")


@pytest.mark.parametrize(
    "data",
    [
        made(extents=((64, 8, 0), (32, 16, 0))),
        made(extents=((32, 16, 0), (40, 16, 0))),
        made(extents=((32, 0, 0), (40, 16, 0))),
        made(extents=((4090, 16, 0),), private=b""),
        made(extents=((2**64 - 8, 16, 0),)),
        made(extents=((8, 2**64 - 8, 0),)),
        made(extents=((0, 2**64 - 1, 0),)),
        made(step=-1),
        made(rank=2),
        made(world=0, rank=0),
        made(file_size=0),
        made(extents=(), private=b"", **{"file_size": 2**64 - 1, "step": -(2**63)}),
    ],
)
def test_a_record_that_contradicts_itself_is_corrupt_whatever_its_checksum(data):
    with pytest.raises(CorruptError):
        Record.from_bytes(data, "x")


@pytest.mark.parametrize("count", [1, 3, 2**31, 2**32 - 1])
def test_a_count_is_not_believed_before_the_size_is_compared(count):
    data = bytearray(made()[:-4])
    struct.pack_into("<I", data, 104, count)
    with pytest.raises(CorruptError) as caught:
        Record.from_bytes(bytes(data) + struct.pack("<I", files.crc(bytes(data))), "some.record")
    assert caught.value.where == "some.record"


def test_an_unknown_version_says_so():
    data = bytearray(made()[:-4])
    data[8] = 3
    with pytest.raises(CorruptError, match="version 3"):
        Record.from_bytes(bytes(data) + struct.pack("<I", files.crc(bytes(data))), "x")


SLOT_HEADER = bytes.fromhex(
    "4446534c4f540d0a" "01000000" "00100000" + IDENTITY +
    "0010000000000000" "4010000000000000" "0400000000000000" "0020000000000000" "4800000000000000"
)  # fmt: skip


def slot(values=None):
    ident = files.identity(structure="ab" * 32, step=40, rank=1, world=2, file_size=4096, extents=2)
    return files.slot(ident, [(32, b"a" * 16), (64, b"b" * 8)], b"seed", values)


def test_slot_header_bytes_are_those_of_the_format_document():
    data = slot()
    assert data[:152] == SLOT_HEADER
    header = SlotHeader.from_bytes(data[:4096], len(data), "x")
    assert (header.identity.step, header.identity.rank, header.extents) == (40, 1, 2)
    assert (header.private_offset, header.private_size, header.data_offset, header.data_size) == (4160, 4, 8192, 72)
    table = header.table(data[4096:4160], "x")
    assert table["place"].tolist() == [8192, 8256]
    assert header.private_crc32c == files.crc(b"seed")


def test_a_slot_of_version_2_has_its_named_values_behind_the_data():
    data = slot(VALUES)
    assert data[:16] == b"DFSLOT\r\n" + struct.pack("<II", 2, 4096) and data[16:152] == SLOT_HEADER[16:]
    assert data[160:180] == struct.pack("<QQI", 8320, 40, files.crc(VALUES)) and data[8320:] == VALUES
    header = SlotHeader.from_bytes(data[:4096], len(data), "x")
    assert (header.values_offset, header.values_size) == (8320, 40)
    assert header.named_values(data[8320:], "x") == {"a": b"xyz", "zz_9": b""}
    for changed in (data[8320:-1], data[8320:-1] + b"8"):
        with pytest.raises(CorruptError):
            header.named_values(changed, "x")
    with pytest.raises(CorruptError):
        SlotHeader.from_bytes(data[:4096], len(data) - 1, "x")
    none = SlotHeader.from_bytes(slot(b"")[:4096], len(data), "x")
    assert (none.values_offset, none.values_size) == (0, 0)


@pytest.mark.parametrize(
    "place", [(8319, 40), (8256, 40), (8320, 41), (2**64 - 64, 64), (8320, 2**64 - 8320), (8320, 0)]
)
def test_named_values_elsewhere_than_behind_the_data_are_corrupt(place):
    head = bytearray(slot(VALUES)[:4092])
    struct.pack_into("<QQ", head, 160, *place)
    with pytest.raises(CorruptError):
        SlotHeader.from_bytes(bytes(head) + struct.pack("<I", files.crc(bytes(head))), 8360, "x")


def test_a_slot_that_was_being_written_is_none():
    data = slot()
    with pytest.raises(CorruptError):
        SlotHeader.from_bytes(bytes(4096), len(data), "x")


def test_a_slot_header_with_any_byte_changed_is_corrupt():
    data = slot()
    for at in [*range(170), *range(200, 4080, 97), *range(4085, 4096)]:
        wrong = bytearray(data[:4096])
        wrong[at] ^= 0x10
        with pytest.raises(CorruptError):
            SlotHeader.from_bytes(bytes(wrong), len(data), "x")


def test_a_slot_shorter_than_its_header_says_is_corrupt():
    data = slot()
    with pytest.raises(CorruptError):
        SlotHeader.from_bytes(data[:4096], len(data) - 1, "x")
    for length in range(0, 4096, 61):
        with pytest.raises(CorruptError):
            SlotHeader.from_bytes(data[:length], len(data), "x")


def test_a_slot_table_with_any_byte_changed_is_corrupt():
    data = slot()
    header = SlotHeader.from_bytes(data[:4096], len(data), "x")
    for at in range(64):
        table = bytearray(data[4096:4160])
        table[at] ^= 1
        with pytest.raises(CorruptError):
            header.table(bytes(table), "x")
