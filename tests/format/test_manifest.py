"""The manifest: golden bytes, and refusal of everything else."""

import json

import pytest
from hypothesis import strategies as st

from deepfreeze.errors import CorruptError
from deepfreeze.format.manifest import Manifest, RecordEntry
from tests.support import edits, files
from tests.support.properties import holds

BODY = b"""{
  "format": 1,
  "step": 40,
  "attempt": "0123456789abcdef0123456789abcdef",
  "run_id": "00112233445566778899aabbccddeeff",
  "structure": "abababababababababababababababababababababababababababababababab",
  "world_size": 2,
  "file_size": 4096,
  "created": "2026-11-21T03:35:58Z",
  "diverged": 0,
  "records": [
    {"rank": 0, "bytes": 4072, "extents": 3, "private": 4, "size": 208, "crc32c": "0000ffff"},
    {"rank": 1, "bytes": 24, "extents": 2, "private": 4, "size": 184, "crc32c": "1b9cdaa0"}
  ],
"""
GOLDEN = BODY + b'  "crc32c": "%CRC%"\n}\n'
CRC = b"bb4fc358"


def golden() -> bytes:
    return GOLDEN.replace(b"%CRC%", CRC)


def test_manifest_bytes_are_those_of_the_format_document():
    assert files.sign(BODY) == golden()
    read = Manifest.from_bytes(golden(), "x")
    assert (read.step, read.attempt, read.run_id, read.structure) == (40, files.ATTEMPT, files.RUN_ID, "ab" * 32)
    assert (read.world_size, read.file_size, read.created, read.private) == (2, 4096, "2026-11-21T03:35:58Z", 8)
    assert [(r.rank, r.nbytes, r.extents, r.size, r.crc32c) for r in read.records] == [
        (0, 4072, 3, 208, 0xFFFF), (1, 24, 2, 184, 0x1B9CDAA0),
    ]  # fmt: skip


BODY_2 = (
    BODY.replace(b'"format": 1', b'"format": 2')
    .replace(b'  "records"', b'  "values": {"from the future":[1,{"a":null}]},\n  "records"')
    .replace(b'"private": 4, "size": 208', b'"private": 4, "values": 0, "size": 216')
    .replace(b'"private": 4, "size": 184', b'"private": 4, "values": 30, "size": 222')
)


def test_manifest_bytes_of_version_2_are_those_of_the_format_document():
    read = Manifest.from_bytes(files.sign(BODY_2), "x")
    assert read.values == {"from the future": [1, {"a": None}]}
    assert [(r.rank, r.values, r.size, read.offset(r.rank)) for r in read.records] == [
        (0, 0, 216, 0),
        (1, 30, 222, 216),
    ]


@pytest.mark.parametrize("values", [b"[]", b"null", b"{", b'{"a": NaN}', b'{"a": 1, "a": 1}', b"[" * 50000])
def test_values_that_are_no_object_make_a_manifest_corrupt(values):
    body = BODY_2.replace(b'{"from the future":[1,{"a":null}]}', values)
    with pytest.raises(CorruptError):
        Manifest.from_bytes(files.sign(body), "x")


def test_the_helper_writes_the_same_bytes():
    entries = [
        {"rank": 0, "bytes": 4072, "extents": 3, "private": 4, "size": 208, "crc32c": "0000ffff"},
        {"rank": 1, "bytes": 24, "extents": 2, "private": 4, "size": 184, "crc32c": "1b9cdaa0"},
    ]
    assert files.manifest(step=40, structure="ab" * 32, file_size=4096, records=entries) == golden()


def _entry(rank: int, numbers: tuple[int, int, int, int], second: bool) -> dict:
    nbytes, extents, private, crc = numbers
    size = (136 + rank if second else 128) + 24 * extents + private + 4
    values = {"values": rank} if second else {}
    head = {"rank": rank, "bytes": nbytes, "extents": extents, "private": private}
    return {**head, **values, "size": size, "crc32c": f"{crc:08x}"}


_numbers = st.tuples(st.integers(0, 2**40), st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 2**32 - 1))


# What the arguments of files.manifest are.
def _contents(second: bool) -> st.SearchStrategy:
    """Of version 2, or of version 1."""
    values = st.sampled_from(["{}", '{"from the future":[1,{"a":"}"}]}']) if second else st.none()
    return st.fixed_dictionaries({**_FIELDS, "values": values, "records": _records(second)})


def _records(second: bool) -> st.SearchStrategy:
    rows = st.lists(_numbers, min_size=1, max_size=4).filter(lambda rows: any(row[0] for row in rows))
    return rows.map(lambda rows: [_entry(rank, row, second) for rank, row in enumerate(rows)])


_FIELDS = {
    "step": st.integers(0, 2**63 - 1),
    "structure": st.binary(min_size=32, max_size=32).map(bytes.hex),
    "run": st.binary(min_size=16, max_size=16).map(bytes.hex),
    "attempt": st.binary(min_size=16, max_size=16).map(bytes.hex),
    "diverged": st.integers(0, 2**32 - 1),
}
contents = st.booleans().flatmap(_contents)


def written(content: dict) -> bytes:
    """The manifest of that content, as the format has it."""
    return files.manifest(**content, file_size=sum(entry["bytes"] for entry in content["records"]))


def plain(read: Manifest) -> dict:
    """What was read, under the names of the file."""
    own = {"rank": "rank", "nbytes": "bytes", "extents": "extents", "private": "private", "size": "size"}
    own |= {"values": "values"} if read.version == 2 else {}
    entries = [{own[key]: getattr(e, key) for key in own} | {"crc32c": f"{e.crc32c:08x}"} for e in read.records]
    found = {**vars(read), "records": entries, "format": read.version}
    return {key: value for key, value in found.items() if key != "version" and (key != "values" or read.version == 2)}


@holds(content=contents)
def test_every_manifest_reads_as_the_values_in_its_file(content):
    data = written(content)
    read = Manifest.from_bytes(data, "x")
    value = json.loads(data)
    del value["crc32c"]
    assert plain(read) == value
    assert all(type(entry) is RecordEntry for entry in read.records)
    assert read.private == sum(entry["private"] + entry.get("values", 0) for entry in content["records"])


@holds(content=contents, edit=edits.of_bytes)
def test_no_manifest_is_read_of_which_a_byte_was_changed(content, edit):
    data = written(content)
    changed = edit(data)
    if changed != data:
        with pytest.raises(CorruptError):
            Manifest.from_bytes(changed, "x")


@holds(content=contents, by=st.integers(-(2**40), 2**40).filter(bool))
def test_records_that_do_not_add_up_to_the_file_are_corrupt(content, by):
    total = sum(entry["bytes"] for entry in content["records"])
    with pytest.raises(CorruptError):
        Manifest.from_bytes(files.manifest(**content, file_size=total + by), "x")


@holds(examples=100, content=contents, edit=edits.of_json)
def test_whatever_has_a_right_checksum_is_refused_or_agrees_with_itself(content, edit):
    """Values that contradict each other, are of another type or out of range, keys too many, too few or in another order."""
    value = json.loads(written(content))
    del value["crc32c"]
    body = edit(value).rstrip()
    try:
        read = Manifest.from_bytes(files.sign(body.removesuffix(b"}").rstrip() + b",\n"), "x")
    except CorruptError:
        return
    assert plain(read) == json.loads(body) and list(json.loads(body)) == list(value)
    assert read.world_size == len(read.records) > 0 and read.file_size == sum(e.nbytes for e in read.records)
    assert [entry.rank for entry in read.records] == list(range(read.world_size))
    header = 128 if read.version == 1 else 136
    sizes = [header + 24 * entry.extents + entry.private + entry.values + 4 for entry in read.records]
    assert [entry.size for entry in read.records] == sizes and max(sizes) <= 1 << 28
    numbers = (read.step, read.world_size, read.file_size, read.diverged)
    assert all(type(one) is int and 0 <= one < 2**63 for one in numbers)


def test_a_manifest_cut_short_anywhere_is_corrupt():
    for length in range(len(golden())):
        with pytest.raises(CorruptError):
            Manifest.from_bytes(golden()[:length], "x")


@pytest.mark.parametrize("mask", [0x01, 0x20, 0x80])
def test_a_manifest_with_any_byte_changed_is_corrupt(mask):
    for at in range(len(golden())):
        wrong = bytearray(golden())
        wrong[at] ^= mask
        with pytest.raises(CorruptError):
            Manifest.from_bytes(bytes(wrong), "x")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"format": 1', b'"format": 2'),
        (b'"step": 40', b'"step": -1'),
        (b'"step": 40', b'"step": NaN'),
        (b'"step": 40', b'"step": 40.0'),
        (b'"step": 40', b'"step": "../../x"'),
        (b'"step": 40', b'"step": 40, "step": 40'),
        (b'"step": 40', b'"step": 40, "note": 1'),
        (b'"step": 40', b'"step": 9223372036854775808'),
        (b'"attempt": "0', b'"attempt": "../'),
        (b'"structure": "a', b'"structure": "A'),
        (b'"world_size": 2', b'"world_size": 3'),
        (b'"world_size": 2', b'"world_size": 4294967296'),
        (b'"file_size": 4096', b'"file_size": 4097'),
        (b'"file_size": 4096', b'"file_size": Infinity'),
        (b"03:35:58Z", b"03:35:58"),
        (b'"rank": 1', b'"rank": 0'),
        (b'"rank": 1', b'"rank": true'),
        (b'"extents": 2', b'"extents": 4294967295'),
        (b'"bytes": 24', b'"bytes": -24'),
        (b'"size": 184', b'"size": 185'),
        (b'"crc32c": "1b9cdaa0"', b'"crc32c": 463264416'),
        (b'  "records": [', b'  "records": {'),
        (BODY, b"[" * 50000),
        (BODY, b"{\n"),
        (BODY, b"\xff"),
    ],
)
def test_a_manifest_that_contradicts_itself_is_corrupt(old, new):
    """A manifest that contradicts itself is corrupt, whatever its checksum says."""
    assert old in BODY
    with pytest.raises(CorruptError):
        Manifest.from_bytes(files.sign(BODY.replace(old, new)), "x")


@pytest.mark.parametrize("data", [b"", b"{}", b"\0" * 4096, b"a" * 100000, b'  "crc32c": "00000000"\n}\n' * 1000])
def test_garbage_is_corrupt_and_says_where(data):
    with pytest.raises(CorruptError) as caught:
        Manifest.from_bytes(data, "run/step-0000000040/manifest.json")
    assert caught.value.where == "run/step-0000000040/manifest.json"
