"""Records and slot headers, decoded strictly (docs/format.md). The native engine writes them.

The checksum is compared before any other value is used. A record that decodes has the right size, checksum and layout; the caller
compares its identity (run, attempt, step, ...) with the manifest's.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from deepfreeze.errors import CorruptError, NewerError
from deepfreeze.format import crc32c, named_values
from deepfreeze.format.names import MAX_STEP
from deepfreeze.format.strict_json import DAMAGED, MAX_INT, UPGRADE

VERSION = 2
FIRST = 1  # the version without named values: read, and never written
RECORD_MAGIC = b"DFRECORD"
SLOT_MAGIC = b"DFSLOT\r\n"
RECORD_HEADERS = {FIRST: 128, VERSION: 136}  # bytes, by version
SLOT_HEADER = 4096  # bytes
MAX_RECORD = 1 << 28  # bytes, enough for 11 million extents: a bound on what a reader allocates

# An extent: the checksum of ``nbytes`` bytes of the model file from ``offset`` on. ``zero`` is always 0.
EXTENT = np.dtype([("offset", "<u8"), ("nbytes", "<u8"), ("crc32c", "<u4"), ("zero", "<u4")])
# An extent in a slot: the slot holds its bytes, from byte ``place`` of the slot on.
SLOT_EXTENT = np.dtype([("offset", "<u8"), ("nbytes", "<u8"), ("place", "<u8"), ("crc32c", "<u4"), ("zero", "<u4")])
_PREFIX = struct.Struct("<8sII")
_IDENTITY = struct.Struct("<16s16s32sqIIQII")
_SLOT_LAYOUT = struct.Struct("<QQQQQII")
_RECORD_SIZE = 120  # the place of a record's size in it, u64
_SLOT_VALUES = struct.Struct("<QQI")


@dataclass(frozen=True)
class Identity:
    """Which checkpoint and rank a record or slot belongs to. ``run_id``, ``attempt`` and ``structure`` (the structure's hash) are
    hexadecimal, ``file_size`` is the model file's size in bytes, ``hashes`` the number of checksums of replicated tensors."""

    run_id: str
    attempt: str
    structure: str
    step: int
    rank: int
    world_size: int
    file_size: int
    hashes: int


@dataclass(frozen=True, eq=False)
class Record:
    """The content of a rank's record. ``extents``: dtype ``EXTENT``, shape ``(extents,)``, sorted by offset, read-only; ``private``:
    the bytes of the per-rank tensors; ``checksums``: uint32, the CRC32C of each replicated tensor on this rank, of shape ``(replicated
    tensors,)`` (all zeros if the ranks were not compared at this checkpoint) or ``(0,)``; ``values``: the named values, those
    with unknown names too; ``size``: of the record, in bytes."""

    identity: Identity
    extents: np.ndarray
    private: bytes
    checksums: np.ndarray
    values: Mapping[str, bytes]
    values_size: int
    size: int
    crc32c: int

    @property
    def nbytes(self) -> int:
        """Sum of the extents, in bytes."""
        return int(self.extents["nbytes"].sum())

    @classmethod
    def from_bytes(cls, data: bytes, where: object) -> Record:
        """Decodes the bytes of a record. CorruptError (at ``where``) if they are damaged, NewerError if a newer version of
        DeepFreeze wrote them."""
        if not RECORD_HEADERS[FIRST] + 4 <= len(data) <= MAX_RECORD:
            expected = f"a record of {RECORD_HEADERS[FIRST] + 4} to {MAX_RECORD} bytes"
            raise _error(where, expected, f"{len(data)} bytes")
        version, header, crc = _check_prefix(data, RECORD_MAGIC, where)
        if header != RECORD_HEADERS[version] or len(data) < header + 4:
            raise _error(where, f"a header of {RECORD_HEADERS[version]} bytes", f"{header}")
        identity, count = _identity(data, where)
        private_size, size = struct.unpack_from("<QQ", data, 112)
        values_size = 0 if version == FIRST else int.from_bytes(data[128:136], "little")
        end = header + EXTENT.itemsize * count
        if size != len(data) or size != end + private_size + values_size + 4 or 4 * identity.hashes > private_size:
            expected = (
                f"{size} bytes, of which {count} extents, {private_size} private bytes and {values_size} of values"
            )
            raise _error(where, expected, f"{len(data)} bytes")
        # The checksums of replicated tensors are the last private bytes.
        private_end = end + private_size - 4 * identity.hashes
        extents = np.frombuffer(bytes(data[header:end]), dtype=EXTENT)
        _check_extents(extents, identity.file_size, where)
        return cls(
            identity=identity,
            extents=extents,
            private=bytes(data[end:private_end]),
            checksums=np.frombuffer(bytes(data[private_end : end + private_size]), "<u4"),
            values=named_values.decode(memoryview(data)[end + private_size : -4], where),
            values_size=values_size,
            size=size,
            crc32c=crc,
        )


def split(data: bytes) -> list[bytes]:
    """Takes apart records that lie one behind the other. Their bytes are not checked; the last part is what is left over, if the bytes are
    no records."""
    parts, at = [], 0
    while at < len(data):
        size = int.from_bytes(data[at + _RECORD_SIZE : at + _RECORD_SIZE + 8], "little")
        end = at + size if 0 < size <= len(data) - at else len(data)
        parts.append(data[at:end])
        at = end
    return parts


@dataclass(frozen=True)
class SlotHeader:
    """The first 4096 bytes of a slot. Offsets and sizes are in bytes, offsets from the slot's start; ``extents`` is the number of
    entries in its table. ``values_offset`` is 0 if the slot has no named values."""

    identity: Identity
    extents: int
    table_offset: int
    private_offset: int
    private_size: int
    data_offset: int
    data_size: int
    table_crc32c: int
    private_crc32c: int
    values_offset: int
    values_size: int
    values_crc32c: int

    @classmethod
    def from_bytes(cls, data: bytes, slot_size: int, where: object) -> SlotHeader:
        """Decodes a header; ``slot_size`` is the slot file's size in bytes. CorruptError (at ``where``) if the header is damaged or
        the slot is cut short, NewerError if a newer version of DeepFreeze wrote it."""
        if len(data) != SLOT_HEADER:
            raise _error(where, f"a slot header of {SLOT_HEADER} bytes", f"{len(data)} bytes")
        version, header, _ = _check_prefix(data, SLOT_MAGIC, where)
        if header != SLOT_HEADER:
            raise _error(where, f"a header of {SLOT_HEADER} bytes", f"{header}")
        values_offset, values_size, values_crc = (0, 0, 0) if version == FIRST else _SLOT_VALUES.unpack_from(data, 160)
        zeros = 160 if version == FIRST else 180
        if any(data[zeros:4092]):
            raise _error(where, f"zeros in bytes {zeros}..4091", "other values")
        identity, count = _identity(data, where)
        table, private, private_size, begin, size, table_crc, private_crc = _SLOT_LAYOUT.unpack_from(data, 112)
        end = private + private_size
        if table != SLOT_HEADER or private != table + SLOT_EXTENT.itemsize * count or begin != -(-end // 4096) * 4096:
            raise _error(where, "table, private bytes and data behind one another", f"{table}, {private}, {begin}")
        if RECORD_HEADERS[VERSION] + EXTENT.itemsize * count + private_size + values_size + 4 > MAX_RECORD:
            raise _error(where, f"a slot whose record has at most {MAX_RECORD} bytes", f"{count} extents")
        if begin + size > slot_size or 4 * identity.hashes > private_size:
            raise _error(where, f"a slot of at least {begin + size} bytes", f"{slot_size} bytes")
        if values_size == 0:
            in_place = values_offset == values_crc == 0
        else:
            in_place = values_offset % 64 == 0 and begin + size <= values_offset <= slot_size - values_size
        if not in_place:
            raise _error(where, "named values behind the data", f"{values_size} bytes at {values_offset}")
        places = (table, private, private_size, begin, size, table_crc, private_crc)
        return cls(identity, count, *places, values_offset, values_size, values_crc)

    def table(self, data: bytes, where: object) -> np.ndarray:
        """The table of the slot's extents, decoded from its bytes: dtype ``SLOT_EXTENT``, shape ``(extents,)``. CorruptError if the
        bytes contradict the header."""
        if len(data) != SLOT_EXTENT.itemsize * self.extents:
            raise _error(where, f"a table of {self.extents} extents", f"{len(data)} bytes")
        actual = crc32c.value(bytes(data))
        if actual != self.table_crc32c:
            raise _error(where, f"table CRC32C {self.table_crc32c:08x}", f"{actual:08x}")
        table = np.frombuffer(bytes(data), dtype=SLOT_EXTENT)
        _check_extents(table, self.identity.file_size, where)
        # Each extent's bytes begin behind those of the one before, at the next multiple of 4096 (extents of 4096 bytes and more)
        # or of 64. No sum wraps around, since each extent lies inside of a file of at most 2**63 bytes.
        ends = np.full(len(table) + 1, self.data_offset, "u8")
        ends[1:] = table["place"] + table["nbytes"]
        unit = np.where(table["nbytes"] >= 4096, 4096, 64).astype("u8")
        places = (ends[:-1] + unit - np.uint64(1)) // unit * unit
        if (table["place"] != places).any() or ends[-1] != self.data_offset + self.data_size:
            raise _error(where, "extents at the places the format gives them", "extents at other places")
        return table

    def named_values(self, data: bytes, where: object) -> dict[str, bytes]:
        """The slot's named values, decoded from the bytes of their section. CorruptError if the bytes contradict the header."""
        actual = crc32c.value(bytes(data))
        if len(data) != self.values_size or actual != self.values_crc32c:
            expected = f"{self.values_size} bytes of named values with CRC32C {self.values_crc32c:08x}"
            raise _error(where, expected, f"{len(data)} bytes with {actual:08x}")
        return named_values.decode(data, where)


def _check_prefix(data: bytes, magic: bytes, where: object) -> tuple[int, int, int]:
    """Checks magic number, checksum and version of a record or slot header. Returns the version, the header's size and the checksum,
    the last 4 bytes."""
    found, version, size = _PREFIX.unpack_from(data)
    if found != magic:
        raise _error(where, f"a file that begins with {magic!r}", f"{found!r}")
    # The checksum is compared before the version, so that a damaged version number does not pass for a newer format. Its place is
    # the same in every version.
    # A view: a copy of a record may have 256 MiB.
    crc, actual = int.from_bytes(data[-4:], "little"), crc32c.value(np.frombuffer(data, np.uint8)[:-4])
    if crc != actual:
        raise _error(where, f"CRC32C {crc:08x}", f"{actual:08x}")
    if version not in (FIRST, VERSION):
        expected = f"version {FIRST} or {VERSION}"
        raise NewerError(where=where, expected=expected, found=f"version {version}", todo=UPGRADE)
    return version, size, crc


def _identity(data: bytes, where: object) -> tuple[Identity, int]:
    run_id, attempt, digest, step, rank, world, file_size, count, hashes = _IDENTITY.unpack_from(data, 16)
    if not 0 <= step <= MAX_STEP or world < 1 or rank >= world or not 1 <= file_size <= MAX_INT:
        found = f"step {step}, rank {rank} of {world}, file size {file_size}"
        raise _error(where, "step >= 0, rank < world size and a file size", found)
    return Identity(run_id.hex(), attempt.hex(), digest.hex(), step, rank, world, file_size, hashes), count


def _check_extents(extents: np.ndarray, file_size: int, where: object) -> None:
    offset, nbytes = extents["offset"], extents["nbytes"]
    size = np.uint64(file_size)
    # Differences instead of sums: a sum of two large values would wrap around.
    inside = (offset < size) & (nbytes > 0) & (nbytes <= size - np.minimum(offset, size))
    if not inside.all() or extents["zero"].any():
        raise _error(where, f"extents inside of a file of {file_size} bytes", "an extent that is not inside of it")
    if (offset[1:] < offset[:-1] + nbytes[:-1]).any():
        raise _error(where, "extents sorted by offset, without overlap", "extents that overlap or are not sorted")


def _error(where: object, expected: str, found: str) -> CorruptError:
    return CorruptError(where=where, expected=expected, found=found, todo=DAMAGED)
