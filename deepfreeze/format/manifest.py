"""The manifest, ``manifest.json``: a directory with a valid manifest is a committed checkpoint (docs/format.md, "Manifest"). The engine
writes it; Python only reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Any

from deepfreeze.format.record import EXTENT, FIRST, MAX_RECORD, RECORD_HEADERS, VERSION
from deepfreeze.format.sealed_json import KEY, LINES, unseal
from deepfreeze.format.strict_json import Fields

MAX_MANIFEST = 64 << 20  # bytes, enough for half a million ranks: a bound on what a reader allocates


@dataclass(frozen=True)
class RecordEntry:
    """The manifest's entry for one rank's record. ``nbytes``: the sum of the sizes of its extents; ``extents``: their number;
    ``private``: the size of its private bytes, the checksums of replicated tensors included; ``values``: the size of its named values;
    ``size``: the size of the record. All sizes in bytes."""

    rank: int
    nbytes: int
    extents: int
    private: int
    values: int
    size: int
    crc32c: int


@dataclass(frozen=True)
class Manifest:
    """The content of a checkpoint's manifest: its identity and the checksum of every record. ``structure``: the hash of the
    structure, 64 hexadecimal digits; ``file_size``: bytes of the model file; ``created``: the commit's time in UTC; ``diverged``: how
    many replicated tensors differed between ranks when the ranks were compared last, at this checkpoint or before; ``values``: the
    named values, those with unknown names too; ``version``: of the format, 1 or 2."""

    step: int
    attempt: str
    run_id: str
    structure: str
    world_size: int
    file_size: int
    created: str
    diverged: int
    records: tuple[RecordEntry, ...]
    values: Mapping[str, Any] = field(default_factory=dict, hash=False)
    version: int = VERSION

    @property
    def gathered(self) -> bool:
        """Whether the records of all ranks lie in one file. In version 1 each has a file of its own."""
        return self.version != FIRST

    def offset(self, rank: int) -> int:
        """Where the rank's record begins in the file of all records, in bytes."""
        return self._offsets[rank]

    @cached_property
    def _offsets(self) -> list[int]:
        return [0, *accumulate(entry.size for entry in self.records)]

    @property
    def private(self) -> int:
        """Private bytes and named values of all ranks together, in bytes."""
        return sum(entry.private + entry.values for entry in self.records)

    @classmethod
    def from_bytes(cls, data: bytes, where: object) -> Manifest:
        """Parses a manifest. CorruptError (at ``where``) if its checksum is wrong, or if its parts contradict each other."""
        top = unseal(data, where, MAX_MANIFEST, LINES)
        version = top.version(FIRST, VERSION)
        head = ("format", "step", "attempt", "run_id", "structure", "world_size", "file_size", "created", "diverged")
        top.keys(*head, *(() if version == FIRST else ("values",)), "records", KEY, ordered=True)
        records = top.items("records")
        manifest = cls(
            step=top.integer("step"),
            attempt=top.hexadecimal("attempt", 32),
            run_id=top.hexadecimal("run_id", 32),
            structure=top.hexadecimal("structure", 64),
            world_size=top.integer("world_size", low=1, high=2**32 - 1),
            file_size=top.integer("file_size", low=1),
            created=top.time("created"),
            diverged=top.integer("diverged", high=2**32 - 1),
            records=tuple(_entry(record, where, rank, version) for rank, record in enumerate(records)),
            values={} if version == FIRST else top.child("values").plain(),
            version=version,
        )
        if len(records) != manifest.world_size:
            raise top.error(f"{manifest.world_size} records", f"{len(records)}")
        total = sum(entry.nbytes for entry in manifest.records)
        if total != manifest.file_size:
            raise top.error(f"records of {manifest.file_size} bytes in all", f"{total}")
        return manifest


def _entry(value: Any, where: object, rank: int, version: int) -> RecordEntry:
    fields = Fields(value, where, f"records[{rank}]")
    values = () if version == FIRST else ("values",)
    fields.keys("rank", "bytes", "extents", "private", *values, "size", "crc32c", ordered=True)
    entry = RecordEntry(
        rank=fields.integer("rank", low=rank, high=rank),
        nbytes=fields.integer("bytes"),
        extents=fields.integer("extents", high=2**32 - 1),
        private=fields.integer("private"),
        values=fields.integer("values") if values else 0,
        size=fields.integer("size", high=MAX_RECORD),
        crc32c=int(fields.hexadecimal("crc32c", 8), 16),
    )
    size = RECORD_HEADERS[version] + EXTENT.itemsize * entry.extents + entry.private + entry.values + 4
    if entry.size != size:
        raise fields.error(f"records[{rank}].size {size}", f"{entry.size}")
    return entry
