"""Writes checkpoints byte by byte as docs/format.md says, using neither the engine nor deepfreeze's own code."""

from __future__ import annotations

import hashlib
import json
import os
import struct
from dataclasses import dataclass, field
from pathlib import Path

import google_crc32c
import numpy as np

RUN_ID = "00112233445566778899aabbccddeeff"
ATTEMPT = "0123456789abcdef0123456789abcdef"
CREATED = "2026-11-21T03:35:58Z"
MODEL_FILE = "model.weights.h5"


def failed_file(step: int, attempt: str = ATTEMPT) -> str:
    """The name of the file by which rank 0 tells the other ranks that a step has failed."""
    return f"step-{step:010}.failed-{attempt}"


def crc(data: bytes) -> int:
    """The CRC32C of these bytes."""
    return google_crc32c.value(data)


def identity(
    *,
    structure: str,
    step: int,
    rank: int,
    world: int,
    file_size: int,
    extents: int,
    hashes=0,
    run=RUN_ID,
    attempt=ATTEMPT,
) -> bytes:
    """The identity block: 96 bytes that records and slots have alike."""
    ids = bytes.fromhex(run) + bytes.fromhex(attempt) + bytes.fromhex(structure)
    return ids + struct.pack("<qIIQII", step, rank, world, file_size, extents, hashes)


def section(**values: bytes) -> bytes:
    """A section of named values."""
    found = b""
    for name, value in sorted(values.items()):
        found += struct.pack("<IIQ", crc(value), len(name), len(value)) + name.encode() + value
    return found


# With names that this version does not know.
UNKNOWN = section(from_the_future=b"anything", position=b"")


def record(
    ident: bytes, extents: list[tuple[int, int, int]], private: bytes = b"", values: bytes | None = None
) -> bytes:
    """The bytes of a record; extents are (file offset, size, crc). Of version 2 with ``values``, a section, else of version 1."""
    version, header = (1, 128) if values is None else (2, 136)
    values = values or b""
    size = header + 24 * len(extents) + len(private) + len(values) + 4
    head = struct.pack("<8sII", b"DFRECORD", version, header) + ident + struct.pack("<QQ", len(private), size)
    head += b"" if version == 1 else struct.pack("<Q", len(values))
    body = head + b"".join(struct.pack("<QQII", *extent, 0) for extent in extents) + private + values
    return body + struct.pack("<I", crc(body))


def slot(ident: bytes, extents: list[tuple[int, bytes]], private: bytes = b"", values: bytes | None = None) -> bytes:
    """The bytes of a slot; extents are (file offset, bytes). Of version 2 with ``values``, a section, else of version 1."""
    table_size = 32 * len(extents)
    begin = -(-(4096 + table_size + len(private)) // 4096) * 4096
    table, data = b"", b""
    for offset, content in extents:
        unit = 4096 if len(content) >= 4096 else 64
        data = data.ljust(-(-len(data) // unit) * unit, b"\0")
        table += struct.pack("<QQQII", offset, len(content), begin + len(data), crc(content), 0)
        data += content
    head = struct.pack("<8sII", b"DFSLOT\r\n", 1 if values is None else 2, 4096) + ident
    head += struct.pack("<QQQQQ", 4096, 4096 + table_size, len(private), begin, len(data))
    head += struct.pack("<II", crc(table), crc(private))
    if values:
        data = data.ljust(-(-len(data) // 64) * 64, b"\0")
        head += struct.pack("<QQI", begin + len(data), len(values), crc(values))
        data += values
    head = head.ljust(4092, b"\0")
    return ((head + struct.pack("<I", crc(head))) + table + private).ljust(begin, b"\0") + data


def manifest(
    *,
    step: int,
    structure: str,
    file_size: int,
    records: list[dict],
    run=RUN_ID,
    attempt=ATTEMPT,
    created=CREATED,
    diverged=0,
    values: str | None = None,
) -> bytes:
    """The bytes of a manifest; ``records`` are the objects of its list, with crc32c as text. Of version 2 with ``values``, the text of an
    object, else of version 1."""
    lines = ",\n".join("    " + json.dumps(entry) for entry in records)
    text = (
        f'{{\n  "format": {1 if values is None else 2},\n  "step": {step},\n  "attempt": "{attempt}",\n  "run_id": "{run}",\n'
        f'  "structure": "{structure}",\n  "world_size": {len(records)},\n  "file_size": {file_size},\n'
        f'  "created": "{created}",\n  "diverged": {diverged},\n'
        + ("" if values is None else f'  "values": {values},\n')
        + f'  "records": [\n{lines}\n  ],\n'
    )
    return sign(text.encode())


def sign(body: bytes) -> bytes:
    """A manifest's text with the last line added, which has its checksum."""
    return body + f'  "crc32c": "{crc(body):08x}"\n}}\n'.encode()


@dataclass
class Sample:
    """The values of a made-up checkpoint: a model of four tensors in a file of 20000 bytes, and each rank's private bytes."""

    values: dict[str, np.ndarray]
    seeds: list[np.ndarray]  # by rank
    content: bytes
    structure: bytes
    extents: list[list[tuple[int, int]]] = field(default_factory=list)  # (offset, size) by rank
    hashes: list[list[int]] = field(default_factory=list)  # by rank: checksums of what should be alike
    # The named values of each record, or a list of them by rank; None: everything is of version 1.
    named: bytes | list[bytes] | None = None

    @property
    def hash(self) -> str:
        """The structure's SHA-256, in hexadecimal."""
        return hashlib.sha256(self.structure).hexdigest()

    def section(self, rank: int) -> bytes | None:
        """The named values of a rank's record."""
        return self.named[rank] if isinstance(self.named, list) else self.named

    def private(self, rank: int) -> bytes:
        """The private bytes of a rank's record."""
        seeds = self.seeds[rank].tobytes() if self.seeds else b""
        return seeds + (struct.pack(f"<{len(self.hashes[rank])}I", *self.hashes[rank]) if self.hashes else b"")


def _tensor(name: str, value: np.ndarray, offset: int, path: str, role: str) -> dict:
    return {
        "dtype": value.dtype.name, "name": name, "nbytes": value.nbytes, "offset": offset, "path": path, "role": role,
        "shape": list(value.shape),
    }  # fmt: skip


def sample(world: int = 2, extent: int = 3000, state: str = "full", seed: int = 0, version: int = 1) -> Sample:
    """Made-up values. The file is cut into extents of at most ``extent`` bytes, which go to the ranks in turn. ``version``: of the
    structure, and of all that is written of the sample. Version 2 has named values that this version does not know."""
    rng = np.random.default_rng(seed)
    size = 20000
    content = bytearray(rng.bytes(size))
    shapes = {"dense/kernel": ("<f4", (50, 40)), "dense/bias": ("<f4", (40,)), "bn/mean": ("<f8", (7,))}
    places = {"dense/kernel": 4096, "dense/bias": 12200, "bn/mean": 12400}
    tensors, values = [], {}
    for number, (name, (dtype, shape)) in enumerate(shapes.items()):
        values[name] = rng.normal(size=shape).astype(dtype)
        data = values[name].tobytes()
        content[places[name] : places[name] + len(data)] = data
        role = "rank-local" if name.startswith("bn") else "replicated"
        tensors.append(_tensor(name, values[name], places[name], f"layers/vars/{number}", role))
    seeds = [rng.integers(0, 2**31, size=2).astype("<i8") for _ in range(world)]
    values["empty"] = np.empty((0, 3), "<f4")
    tensors.insert(0, _tensor("empty", values["empty"], 0, "layers/vars/3", "replicated"))
    values = {"empty": values.pop("empty"), **values}
    if state == "full":
        values["seed"] = seeds[0]
        tensors.append(_tensor("seed", seeds[0], 0, "seeds/0", "per-rank"))
    value = {
        "file": MODEL_FILE, "file_size": size, "format": 1, "layout": "keras-h5", "state": state, "tensors": tensors,
        "framework": {"api": "keras", "keras": "3.15.1", "tensorflow": "2.21.0"},
    }  # fmt: skip
    if version == 2:
        value |= {"format": 2, "values": {"from the future": [1, {"a": None}]}}
    cuts = [(at, min(extent, size - at)) for at in range(0, size, extent)]
    return Sample(
        values=values,
        seeds=seeds if state == "full" else [],
        content=bytes(content),
        structure=json.dumps(value, sort_keys=True, separators=(",", ":")).encode(),
        named=UNKNOWN if version == 2 else None,
        extents=[cuts[rank::world] for rank in range(world)],
    )


def write_events(run: Path) -> None:
    """Writes a file of events: that step 20 was captured."""
    (run / "events").mkdir()
    event = {"v": 1, "t": 1_700_000_000_000_000_000, "m": 2.5, "kind": "captured", "step": 20, "nbytes": 1}
    (run / "events" / f"{ATTEMPT}.jsonl").write_text(json.dumps(event) + "\n")


def write_run(path: Path, signed: bool = False) -> Path:
    """Makes a run without checkpoints. ``signed``: whether run.json has a checksum; the first versions wrote none."""
    path.mkdir(exist_ok=True)
    text = json.dumps({"format": 1, "run_id": RUN_ID, "created": CREATED})
    if signed:
        text = text.removesuffix("}")
        text += f', "crc32c": "{crc(text.encode()):08x}"}}\n'
    (path / "run.json").write_text(text)
    return path


def write_structure(run: Path, made: Sample) -> None:
    """Writes the structure's file."""
    (run / "structures").mkdir(exist_ok=True)
    (run / "structures" / f"{made.hash}.json").write_bytes(made.structure)


def write_partial(run: Path, step: int, made: Sample, ranks: list[int] | None = None, attempt=ATTEMPT) -> Path:
    """Makes a partial directory with the records of ``ranks`` (None: all ranks) and without a manifest."""
    folder = run / f"step-{step:010d}.partial-{attempt}"
    folder.mkdir()
    (folder / MODEL_FILE).write_bytes(made.content)
    for rank in range(len(made.extents)) if ranks is None else ranks:
        (folder / f"rank-{rank:05d}.record").write_bytes(rank_record(step, made, rank, attempt))
    return folder


def rank_record(step: int, made: Sample, rank: int, attempt=ATTEMPT) -> bytes:
    """The bytes of one rank's record of a sample."""
    extents = [(at, n, crc(made.content[at : at + n])) for at, n in made.extents[rank]]
    ident = identity(
        structure=made.hash, step=step, rank=rank, world=len(made.extents), file_size=len(made.content),
        extents=len(extents), attempt=attempt, hashes=len(made.hashes[rank]) if made.hashes else 0,
    )  # fmt: skip
    return record(ident, extents, made.private(rank), made.section(rank))


def write_checkpoint(
    run: Path, step: int, made: Sample | None = None, attempt=ATTEMPT, diverged=0, said: dict | None = None
) -> tuple[Path, Sample]:
    """Writes a committed checkpoint and its structure. ``said``: the named values of the manifest, of version 2."""
    made = made or sample()
    write_structure(run, made)
    partial = write_partial(run, step, made, attempt=attempt)
    entries: list[dict] = []
    values = None if made.named is None else json.dumps(said) if said else '{"from the future":"}"}'
    if values is not None:
        for rank in range(len(made.extents)):
            (partial / f"rank-{rank:05d}.record").unlink()
            with open(partial / "records", "ab") as gathered:
                gathered.write(rank_record(step, made, rank, attempt))
    for rank, extents in enumerate(made.extents):
        data = rank_record(step, made, rank, attempt)
        entries.append({
            "rank": rank, "bytes": sum(n for _, n in extents), "extents": len(extents),
            "private": len(made.private(rank)), **({} if made.named is None else {"values": len(made.section(rank) or b"")}),
            "size": len(data),
            "crc32c": f"{int.from_bytes(data[-4:], 'little'):08x}",
        })  # fmt: skip
    own = {"step": step, "attempt": attempt, "diverged": diverged, "values": values}
    text = manifest(structure=made.hash, file_size=len(made.content), records=entries, **own)
    (partial / "manifest.json").write_bytes(text)
    return partial.rename(run / f"step-{step:010d}"), made


def before_its_commit(folder: Path) -> None:
    """Makes a committed checkpoint's directory as it was right before its commit: with each rank's own record, without a manifest."""
    entries = json.loads((folder / "manifest.json").read_text())["records"]
    data = (folder / "records").read_bytes()
    for entry in entries:
        (folder / f"rank-{entry['rank']:05d}.record").write_bytes(data[: entry["size"]])
        data = data[entry["size"] :]
    (folder / "records").unlink()
    (folder / "manifest.json").unlink()


def flip(path: Path, at: int, mask: int = 0x01) -> None:
    """Flips bits of one byte of a file."""
    data = bytearray(path.read_bytes())
    data[at] ^= mask
    path.write_bytes(data)


def flip_in_place(path: Path, at: int, mask: int) -> None:
    """As ``flip``, but writes that byte alone and not the whole file."""
    with open(path, "r+b", buffering=0) as file:
        byte = os.pread(file.fileno(), 1, at)[0]
        os.pwrite(file.fileno(), bytes([byte ^ mask]), at)


def slot_name(rank: int, attempt: str, index: int) -> str:
    """The name that the engine gives slot ``index`` of a rank of an attempt."""
    return f"rank-{rank:05d}-{attempt}-{index}.slot"
