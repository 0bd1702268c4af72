"""The hostile files of test_hostile.py: by name, what makes them."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import socket
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support import configs, files, plans

Make = Callable[[], bytes]
STEP = "step-0000000040"
DEEP = "[" * 100_000
LONG = "9" * 4200  # digits that Python still reads
LONGER = "9" * 100_000
PATHS = [
    "../x",
    "/etc/passwd",
    "a/../../x",
    "a/./b",
    "a//b",
    ".",
    "..",
    "a\\u0000b",
    "a\\nb",
    "a\\u001b[31m",
    "a\\ud800",
    "",
]


@functools.cache
def sample() -> files.Sample:
    """The checkpoint that everything here is a change of."""
    return files.sample()


def put_manifest(run: Path, data: bytes) -> None:
    """In place of the checkpoint's."""
    (run / STEP / "manifest.json").write_bytes(data)


def put_record(run: Path, rank: int, data: bytes) -> None:
    """In place of the rank's; the manifest means it, if a manifest can mean a record of that size."""
    (run / STEP / f"rank-{rank:05d}.record").write_bytes(data)
    entry = entries()[rank]
    room = len(data) - 132 - entry["private"]
    if room <= 0 or room % 24 != 0:
        return
    entry.update(size=len(data), crc32c=f"{int.from_bytes(data[-4:], 'little'):08x}", extents=room // 24)
    put_manifest(run, manifest(records=[entry if e["rank"] == rank else e for e in entries()]))


def put_structure(run: Path, data: bytes) -> None:
    """In place of the checkpoint's; manifest and records mean it."""
    for path in sorted((run / STEP).iterdir()):
        path.unlink()
    (run / STEP).rmdir()
    files.write_checkpoint(run, 40, dataclasses.replace(sample(), structure=data))


# --- manifests


def entries() -> list[dict[str, Any]]:
    """What the sample's manifest says of its records."""
    return [dict(entry) for entry in _entries()]


@functools.cache
def _entries() -> list[dict[str, Any]]:
    made = sample()
    found = []
    for rank in range(2):
        data = files.rank_record(40, made, rank)
        found.append({
            "rank": rank, "bytes": sum(n for _, n in made.extents[rank]), "extents": len(made.extents[rank]),
            "private": 16, "size": len(data), "crc32c": f"{int.from_bytes(data[-4:], 'little'):08x}",
        })  # fmt: skip
    return found


def manifest(**changes: Any) -> bytes:
    """The sample's, signed."""
    values = {"step": 40, "structure": sample().hash, "file_size": 20000, "records": entries()}
    return files.manifest(**{**values, **changes})


def _manifest(old: str, new: str) -> bytes:
    """With one text exchanged for another, signed again."""
    body = manifest().decode().rpartition('  "crc32c"')[0]
    assert old in body, old
    return files.sign(body.replace(old, new, 1).encode("utf-8", "surrogatepass"))


def _entry(**changes: Any) -> bytes:
    first, second = entries()
    return manifest(records=[{**first, **changes}, second])


# Values of other types and sizes, for every place that has a number or a short text.
NUMBERS = {
    "negative": "-1", "i64": str(2**63), "u64": str(2**64), "float": "1.0", "nan": "NaN", "infinity": "Infinity", "1e400": "1e400",
    "text": '"1"', "true": "true", "null": "null", "list": "[1]", "long": LONG, "longer": LONGER, "deep": DEEP,
    "nested": "[" * 960 + "]" * 960,
}  # fmt: skip

MANIFESTS: dict[str, Make] = {}
for _key, _old in {
    "step": '"step": 40', "world_size": '"world_size": 2', "file_size": '"file_size": 20000', "diverged": '"diverged": 0',
    "format": '"format": 1', "created": f'"created": "{files.CREATED}"', "attempt": f'"attempt": "{files.ATTEMPT}"',
    "run_id": f'"run_id": "{files.RUN_ID}"', "structure": f'"structure": "{sample().hash}"',
}.items():  # fmt: skip
    for _name, _value in NUMBERS.items():
        MANIFESTS[f"{_key} {_name}"] = functools.partial(_manifest, _old, f'"{_key}": {_value}')
for _key in ("attempt", "run_id", "structure", "created"):
    for _path in PATHS:
        _old = json.loads(manifest())[_key]
        MANIFESTS[f"{_key} {_path!r}"] = functools.partial(_manifest, f'"{_key}": "{_old}"', f'"{_key}": "{_path}"')
MANIFESTS |= {
    f"{key} of a record {value}": functools.partial(_entry, **{key: value})
    for key in ("rank", "bytes", "extents", "private", "size", "crc32c")
    for value in (-1, 2**32, 2**61, 2**63 - 1, 2**63, 2**64, 1.5, None, True, "../x", [], {})
}
MANIFESTS |= {
    "empty": lambda: b"",
    "blank": lambda: files.sign(b""),
    "no object": lambda: files.sign(b"[],\n"),
    "byte order mark": lambda: files.sign(b"\xef\xbb\xbf" + manifest().rpartition(b'  "crc32c"')[0]),
    "latin 1": lambda: files.sign(manifest().rpartition(b'  "crc32c"')[0].replace(b"created", b"cr\xe9ated")),
    "utf 16": lambda: files.sign(manifest().decode().rpartition('  "crc32c"')[0].encode("utf-16")),
    "a key twice": lambda: _manifest('"step": 40', '"step": 40,\n  "step": 40'),
    "an unknown key": lambda: _manifest('"step": 40', '"step": 40,\n  "load": "pickle"'),
    "another order": lambda: _manifest('"format": 1,\n  "step": 40', '"step": 40,\n  "format": 1'),
    "another step": lambda: manifest(step=41),
    "another run": lambda: manifest(run="f" * 32),
    "no records": lambda: manifest(records=[]),
    "records missing": lambda: _manifest('"world_size": 2', '"world_size": 4294967295'),
    "a rank twice": lambda: manifest(records=[entries()[0], entries()[0]]),
    "a million records": lambda: files.sign(
        manifest().rpartition(b'  "crc32c"')[0].replace(b'"records": [', b'"records": [' + b"{}," * 80_000)
    ),
    # Sums and products that wrap around to the right number in 64 bits.
    "sizes that wrap": lambda: _entry(extents=2**32 - 1, private=2**63 - 1, size=196),
    "bytes that wrap": lambda: manifest(records=[{**e, "bytes": 2**63 - 1 if e["rank"] else 20001} for e in entries()]),
    "the 30th of February": lambda: manifest(created="2026-02-30T00:00:00Z"),
    "two last lines": lambda: files.sign(manifest()),
}


# --- structures


def _structure(change: Callable[[dict, dict], Any]) -> bytes:
    value = json.loads(sample().structure)
    change(value, value["tensors"][1])
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _text(old: str, new: str) -> bytes:
    text = sample().structure.decode()
    assert old in text, old
    return text.replace(old, new, 1).encode("utf-8", "surrogatepass")


def _set(key: str, value: Any) -> Make:
    return lambda: _structure(lambda top, tensor: tensor.update({key: value}))


STRUCTURES: dict[str, Make] = {}
for _key, _old in {"file_size": '"file_size":20000', "format": '"format":1', "nbytes": '"nbytes":8000', "offset": '"offset":4096',
                   "shape": '"shape":[50,40]', "tensors": '"tensors":[', "file": '"file":"model.weights.h5"',
                   "state": '"state":"full"', "keras": '"keras":"3.15.1"'}.items():  # fmt: skip
    for _name, _value in NUMBERS.items():
        _after = "," if _key == "tensors" else ""
        STRUCTURES[f"{_key} {_name}"] = functools.partial(_text, _old, f'"{_key}":{_value}{_after}')
# Of two shapes with the same bytes either may be meant.
STRUCTURES.pop("keras text")
for _path in PATHS:
    STRUCTURES[f"file {_path!r}"] = functools.partial(_text, '"file":"model.weights.h5"', f'"file":"{_path}"')
    STRUCTURES[f"path {_path!r}"] = functools.partial(_text, '"path":"layers/vars/0"', f'"path":"{_path}"')
for _path in PATHS[7:]:
    STRUCTURES[f"name {_path!r}"] = functools.partial(_text, '"name":"dense/kernel"', f'"name":"{_path}"')
STRUCTURES |= {
    f"shape {json.dumps(shape)[:40]}": functools.partial(
        lambda shape: _structure(lambda top, tensor: tensor.update(shape=shape, nbytes=0)), shape
    )
    for shape in (
        *([2**32, 2**32], [2**62, 2**62], [0, 2**62, 2**62], [0, 2**63 - 1], [2**63 - 1] * 32, [1] * 33, [-1, -2000]),
        *([True], [1.0], ["1"], [[]], [None], [0] * 50_000),
    )
}
STRUCTURES |= {
    "overlap": _set("offset", 12000),
    "behind the end": _set("offset", 19000),
    "the name of another": _set("name", "dense/bias"),
    "the path of another": _set("path", "layers/vars/1"),
    "object": _set("dtype", "object"),
    "long double": _set("dtype", "float128"),
    "text": _set("dtype", "<U1000000"),
    "a role": _set("role", "everybody"),
    "a key twice": lambda: _text('"format":1', '"format":1,"format":1'),
    "an unknown key": lambda: _text('"format":1', '"exec":"import os","format":1'),
    "byte order mark": lambda: b"\xef\xbb\xbf" + sample().structure,
    "not canonical": lambda: sample().structure + b"\n",
    "invalid UTF-8": lambda: sample().structure.replace(b"kernel", b"k\xffrnel"),
    "empty": lambda: b"",
    "null": lambda: b"null",
    "many brackets": lambda: b'{"tensors":[' + b"[]," * 50_000 + b"[]]}",
    "many tensors": lambda: b'{"tensors":[' + b"{}," * 50_000 + b"{}]}",
}


# --- records


def record(
    extents: list[tuple[int, int, int]] | None = None, *, count: int | None = None, private: bytes | None = None, hashes: int = 0,
    sizes: tuple[int, int] | None = None, zero: int = 0, **changes: Any,
) -> bytes:  # fmt: skip
    """Rank 1's of the sample, signed; ``count`` and ``sizes`` (private, whole) are what it claims of itself."""
    made = sample()
    own = made.seeds[1].tobytes() if private is None else private
    given = [(at, n, files.crc(made.content[at : at + n])) for at, n in made.extents[1]] if extents is None else extents
    values = {"structure": made.hash, "step": 40, "rank": 1, "world": 2, "file_size": 20000, "extents": len(given)}
    ident = files.identity(**{**values, **changes})
    data = bytearray(files.record(ident, given, own))
    if count is not None:
        struct.pack_into("<I", data, 104, count)
    struct.pack_into("<I", data, 108, hashes)
    if sizes is not None:
        struct.pack_into("<QQ", data, 112, *sizes)
    if zero:
        struct.pack_into("<I", data, 128 + 20, zero)
    return sign(bytes(data))


def sign(data: bytes) -> bytes:
    """A record with its last four bytes made right."""
    return data[:-4] + struct.pack("<I", files.crc(data[:-4]))


RECORDS: dict[str, Make] = {
    f"count {count}": functools.partial(record, count=count)
    for count in (0, 1, 5, 2**16, 2**31, 2**32 - 1, (2**64 // 24) % 2**32)
}
RECORDS |= {
    f"sizes {sizes}": functools.partial(record, sizes=sizes)
    for sizes in (
        (2**64 - 1, 236),
        (2**63, 236),
        (2**64 - 8, 2**64 - 8),
        (16, 2**64 - 1),
        (17, 236),
        (2**64 - 72, 148),
        (0, 0),
    )
}
RECORDS |= {
    f"extents {name}": functools.partial(record, extents)
    for name, extents in {
        "overlap": [(3000, 3000, 0), (5999, 3000, 0)], "unsorted": [(9000, 3000, 0), (3000, 3000, 0)], "twice": [(0, 9, 0)] * 2,
        "empty": [(3000, 0, 0)], "outside": [(19000, 1001, 0)], "at the end": [(20000, 1, 0)], "negative": [(2**64 - 8, 8, 0)],
        "wrap": [(2**64 - 8, 16, 0)], "wrap within": [(8, 2**64 - 8, 0)], "everything": [(0, 2**64 - 1, 0)],
        "half of everything": [(0, 2**63, 0)], "of another rank": [(0, 3000, 0)], "none": [],
    }.items()
}  # fmt: skip
RECORDS |= {
    f"{key} {value}": functools.partial(record, **{key: value})
    for key, values in {
        "step": (-1, -(2**63), 41, 2**63 - 1), "rank": (0, 2, 2**32 - 1), "world": (0, 1, 3, 2**32 - 1),
        "file_size": (0, 1, 19999, 2**63, 2**64 - 1), "hashes": (5, 2**30, 2**31, 2**32 - 1), "zero": (1,),
    }.items()
    for value in values
}  # fmt: skip
RECORDS |= {
    "another run's": lambda: record(run="e" * 32),
    "another attempt's": lambda: record(attempt="e" * 32),
    "another structure's": lambda: record(structure="e" * 64),
    "an empty file": lambda: b"",
    "four bytes": lambda: bytes(4),
    "a header alone": lambda: sign(record()[:132]),
    "more than it says": lambda: sign(record() + bytes(24)),
    "another magic": lambda: sign(b"DFSLOT\r\n" + record()[8:]),
    "another version": lambda: sign(record()[:8] + b"\3" + record()[9:]),
    "a pickle": lambda: b"\x80\x04cos\nsystem\n(S'false'\ntR.",
}


# --- run.json


def _run(**changes: str) -> Make:
    values = {"format": "1", "run_id": f'"{files.RUN_ID}"', "created": f'"{files.CREATED}"', **changes}
    return lambda: ("{" + ", ".join(f'"{key}": {value}' for key, value in values.items()) + "}\n").encode()


def seeded_run(**changes: str) -> Make:
    """A run.json with a parent, some of its fields changed."""
    values = {
        "path": '"/runs/old"',
        "run_id": f'"{"c" * 32}"',
        "step": "40",
        "attempt": f'"{files.ATTEMPT}"',
        **changes,
    }
    return _run(parent="{" + ", ".join(f'"{key}": {value}' for key, value in values.items()) + "}")


RUNS: dict[str, Make] = {
    f"{key} {name}": _run(**{key: value}) for key in ("format", "run_id", "created") for name, value in NUMBERS.items()
}
RUNS |= {f"run_id {path!r}": _run(run_id=f'"{path}"') for path in PATHS}
RUNS |= {f"parent {name}": _run(parent=value) for name, value in NUMBERS.items()}
_PARENT_KEYS = ("path", "run_id", "step", "attempt")
RUNS |= {
    f"parent's {key} {name}": seeded_run(**{key: value}) for key in _PARENT_KEYS for name, value in NUMBERS.items()
}
# A number is no path, and any text is one, if it can be printed.
RUNS.pop("parent's path text")
RUNS |= {
    f"parent's {key} {path!r}": seeded_run(**{key: f'"{path}"'}) for key in ("run_id", "attempt") for path in PATHS
}
RUNS |= {f"parent's path {path!r}": seeded_run(path=f'"{path}"') for path in PATHS[7:]}
RUNS |= {
    "an unknown key": _run(extra="1"),
    "a wrong checksum": _run(crc32c='"00000000"'),
    "upper case": _run(run_id=f'"{"A" * 32}"'),
    "very long": _run(run_id='"' + "a" * 3_000 + '"'),
    "a parent with a key too many": seeded_run(how='"restore"'),
    "a parent with a key too few": lambda: seeded_run()().replace(b'"step": 40, ', b""),
    "a parent with a key twice": lambda: seeded_run()().replace(b'"step": 40', b'"step": 40, "step": 40'),
    "a parent with a long path": seeded_run(path='"/' + "x" * 4096 + '"'),
    "a parent too large to read": seeded_run(path='"/' + "x" * (64 << 10) + '"'),
    "a newline": _run(run_id=f'"{files.RUN_ID}\\n"'),
    "empty": lambda: b"",
    "no object": lambda: b"[]",
    "byte order mark": lambda: b"\xef\xbb\xbf" + _run()(),
    "invalid UTF-8": lambda: b'{"\xff": 1}',
    "a key twice": lambda: _run()().replace(b'"format": 1', b'"format": 1, "format": 1'),
    "deep": lambda: b"[" * 100_000,
}


# --- slots


def slot(
    extents: list[tuple[int, bytes]] | None = None, private: bytes = b"seed", *, table: Callable[[bytearray], Any] | None = None,
    header: Callable[[bytearray], Any] | None = None, size: int | None = None, **changes: Any,
) -> Callable[[Path], None]:  # fmt: skip
    """Writes one; ``table`` and ``header`` change it before each is signed, ``size`` the file's afterwards."""

    def write(path: Path) -> None:
        given = [(3000, b"x" * 3000), (9000, b"y" * 5000)] if extents is None else extents
        values = {"structure": "ab" * 32, "step": 40, "rank": 1, "world": 2, "file_size": 20000, "extents": len(given)}
        data = bytearray(files.slot(files.identity(**{**values, **changes}), given, private))
        end = 4096 + 32 * len(given)
        if table is not None:
            part = data[4096:end]
            table(part)
            data[4096:end] = part
            struct.pack_into("<I", data, 152, files.crc(bytes(part)))
        if header is not None:
            header(data)
        struct.pack_into("<I", data, 4092, files.crc(bytes(data[:4092])))
        path.write_bytes(data)
        if size is not None:
            os.truncate(path, size)

    return write


def _at(form: str, at: int, *values: int) -> Callable[[bytearray], None]:
    return lambda data: struct.pack_into(form, data, at, *values)


def _huge(extents: int, private: int) -> Callable[[bytearray], None]:
    """A header that agrees with itself, of a sparse file of any size."""

    def change(data: bytearray) -> None:
        begin = 4096 + 32 * extents
        struct.pack_into("<I", data, 104, extents)
        struct.pack_into("<QQQQ", data, 120, begin, private, -(-(begin + private) // 4096) * 4096, 0)

    return change


def _with_values(place: int, size: int) -> Callable[[bytearray], None]:
    """A header of version 2 with named values there."""

    def change(data: bytearray) -> None:
        struct.pack_into("<I", data, 8, 2)
        struct.pack_into("<QQI", data, 160, place, size, files.crc(bytes(64)))

    return change


SLOTS: dict[str, Callable[[Path], None]] = {
    "not whole": lambda path: path.write_bytes(bytes(8192)),
    "empty": lambda path: path.write_bytes(b""),
    "short": slot(size=4095),
    "cut": slot(size=17191),
    "no header behind": slot(size=4096),
    "private bytes changed": lambda path: (slot()(path), files.flip(path, 4096 + 64)),
    "table changed": lambda path: (slot()(path), files.flip(path, 4096)),
    "a count of none": slot(header=_at("<I", 104, 0)),
    "a count of all": slot(header=_at("<I", 104, 2**32 - 1)),
    "a table of 128 GiB": slot(header=_huge(2**32 - 1, 4), size=2**38),
    "a table of 1 GiB": slot(header=_huge(2**25, 4), size=2**38),
    "private bytes of 1 TiB": slot(header=_huge(2, 2**40), size=2**42),
    "private bytes of 1 GiB": slot(header=_huge(2, 2**30), size=2**42),
    "hashes": slot(header=_at("<I", 108, 2**32 - 1)),
    "table elsewhere": slot(header=_at("<Q", 112, 0)),
    "private elsewhere": slot(header=_at("<Q", 120, 2**64 - 4096)),
    "negative private size": slot(header=_at("<Q", 128, 2**64 - 1)),
    "data before": slot(header=_at("<Q", 136, 0)),
    "data size of everything": slot(header=_at("<Q", 144, 2**64 - 1)),
    "data that wraps": slot(header=_at("<QQ", 136, 2**64 - 4096, 8192)),
    "something in the zeros": slot(header=_at("<B", 4000, 1)),
    "another version": slot(header=_at("<I", 8, 3)),
    "values before the data": slot(header=_with_values(4096, 8)),
    "values behind the end": slot(header=_with_values(2**63, 8)),
    "values of everything": slot(header=_with_values(17216, 2**64 - 1)),
    "values of 1 GiB": slot(header=_with_values(17216, 2**30), size=2**38),
    "values that are none": slot(header=_with_values(17216, 64), size=17280),
    "a place of no values": slot(header=_with_values(17216, 0)),
    "another header size": slot(header=_at("<I", 12, 8192)),
    "a record": slot(header=_at("<8s", 0, b"DFRECORD")),  # type: ignore[arg-type]
    "overlap": slot(table=_at("<Q", 32, 5000)),
    "unsorted": slot(table=_at("<Q", 32, 0)),
    "outside": slot(table=_at("<Q", 32, 19000)),
    "negative offset": slot(table=_at("<Q", 0, 2**64 - 8)),
    "negative size": slot(table=_at("<Q", 8, 2**64 - 3000)),
    "no size": slot(table=_at("<Q", 8, 0)),
    "place before the data": slot(table=_at("<Q", 16, 0)),
    "place behind the end": slot(table=_at("<Q", 16, 2**63)),
    "places that overlap": slot(table=_at("<Q", 48, 8192)),
    "place not aligned": slot(table=_at("<Q", 48, 12289)),
    "not zero": slot(table=_at("<I", 28, 1)),
    "step": slot(step=-1),
    "rank": slot(rank=2),
    "world": slot(world=0, rank=0),
    "file size of nothing": slot([], file_size=0),
    "file size beyond offsets": slot(file_size=2**63),
    # Sizes that wrap around: the data would seem to end inside of the file.
    "sizes that wrap": slot([(0, b"x" * 64)], table=_at("<QQ", 0, 0, 2**64 - 4096), file_size=2**64 - 1),
}


# --- model configurations


def _config(text: str) -> Make:
    return lambda: configs.sign(text.encode("utf-8", "surrogatepass"))


def _in_config(**changes: str) -> Make:
    values = {
        "format": "1", "run_id": f'"{files.RUN_ID}"', "attempt": f'"{files.ATTEMPT}"', "config": '{"class_name": "Model"}', **changes,
    }  # fmt: skip
    return _config("{" + ", ".join(f'"{key}": {value}' for key, value in values.items()) + "}")


CONFIGS: dict[str, Make] = {
    f"{key} {name}": _in_config(**{key: value})
    for key in ("format", "run_id", "attempt", "config")
    for name, value in NUMBERS.items()
}
CONFIGS |= {f"{key} {path!r}": _in_config(**{key: f'"{path}"'}) for key in ("run_id", "attempt") for path in PATHS}
CONFIGS |= {
    f"{name} within": _in_config(config=f'{{"class_name": "Model", "config": {value}}}')
    for name, value in NUMBERS.items()
    if name in ("nan", "infinity", "1e400", "longer", "deep")
}
CONFIGS |= {
    "an unknown key": _in_config(load='"pickle"'),
    "another attempt's": _in_config(attempt=f'"{"f" * 32}"'),
    "another run's": _in_config(run_id=f'"{"f" * 32}"'),
    "another version": _in_config(format="2"),
    "a key twice": _in_config(config='{"class_name": "Model", "class_name": "Lambda"}'),
    "no class": _in_config(config="{}"),
    "a class that is no name": _in_config(config='{"class_name": ["Model"]}'),
    "spelled otherwise": _in_config(config='{"class_name":"Model"}'),
    "not ASCII": _in_config(config='{"class_name": "Model", "name": "\u00e9"}'),
    "a wrong checksum": lambda: configs.config_bytes()[:-12] + b'00000000"}\n',
    "no checksum": lambda: configs.config_bytes().partition(b', "crc32c"')[0] + b"}\n",
    "more behind it": lambda: configs.config_bytes() + b"\n",
    "byte order mark": lambda: configs.sign(b"\xef\xbb\xbf" + _in_config()()),
    "empty": lambda: b"",
    "a pickle": lambda: b"\x80\x04cos\nsystem\n(S'false'\ntR.",
    "many brackets": _in_config(config='{"class_name": "Model", "layers": [' + "[]," * 50_000 + "[]]}"),
}


# --- plans


def _in_plan(**changes: str) -> Make:
    values = {"format": "1", "run_id": f'"{files.RUN_ID}"', "sections": '{"auto": {"key": {}}}', **changes}
    return _config("{" + ", ".join(f'"{key}": {value}' for key, value in values.items()) + "}")


def _in_section(**changes: str) -> Make:
    """A plan.json whose section auto has other values, as JSON."""
    values = {key: json.dumps(value) for key, value in plans.section_json().items()} | changes
    return _in_plan(sections='{"auto": {' + ", ".join(f'"{key}": {value}' for key, value in values.items()) + "}}")


# Values of other types and sizes, crossed with the places where they may be: `make test-all` takes them all.
MORE_PLANS: dict[str, Make] = {
    f"{key} {name}": _in_plan(**{key: value})
    for key in ("format", "run_id", "sections")
    for name, value in NUMBERS.items()
}
MORE_PLANS |= {f"run_id {path!r}": _in_plan(run_id=f'"{path}"') for path in PATHS}
MORE_PLANS |= {f"a section {path!r}": _in_plan(sections=f'{{"{path}": {{"key": {{}}}}}}') for path in PATHS}
MORE_PLANS |= {f"section {name}": _in_plan(sections=f'{{"auto": {value}}}') for name, value in NUMBERS.items()}
MORE_PLANS |= {f"key {name}": _in_section(key=value) for name, value in NUMBERS.items()}
MORE_PLANS |= {
    f"{key} {name}": _in_section(**{key: value})
    for key in ("interval", "overhead", "decisions")  # tests/plan/test_auto_section.py has the others
    for name, value in NUMBERS.items()
}
# A budget of 100 %.
MORE_PLANS.pop("overhead float")
PLANS: dict[str, Make] = {
    f"{name} in an unknown section": _in_plan(sections=f'{{"new": {{"key": {{}}, "a": {value}}}}}')
    for name, value in NUMBERS.items()
    if name in ("nan", "infinity", "1e400", "longer", "deep")
}
PLANS |= {
    "a name that is a path": _in_plan(sections='{"../x": {"key": {}}}'),
    "an interval that is text": _in_section(interval='"1"'),
    "an unknown key": _in_plan(load='"pickle"'),
    "no sections": _config(f'{{"format": 1, "run_id": "{files.RUN_ID}"}}'),
    "another run's": _in_plan(run_id=f'"{"f" * 32}"'),
    "another version": _in_plan(format="2"),
    "a section twice": _in_plan(sections='{"auto": {"key": {}}, "auto": {"key": {}}}'),
    "a section without a key": _in_plan(sections='{"auto": {}}'),
    "a section with a long name": _in_plan(sections=f'{{"{"a" * 65}": {{"key": {{}}}}}}'),
    "a window with its bounds exchanged": _in_section(
        windows='[{"step": 1, "interval": 1, "overhead": 0.1, "low": 0.2, "high": 0.0}]'
    ),
    "many windows": _in_section(windows="[" + "{}," * 50_000 + "{}]"),
    "a wrong checksum": lambda: plans.plan_bytes()[:-12] + b'00000000"}\n',
    "no checksum": lambda: plans.plan_bytes().partition(b', "crc32c"')[0] + b"}\n",
    "more behind it": lambda: plans.plan_bytes() + b"\n",
    "byte order mark": lambda: configs.sign(b"\xef\xbb\xbf" + _in_plan()()),
    "empty": lambda: b"",
    "a pickle": lambda: b"\x80\x04cos\nsystem\n(S'false'\ntR.",
}


def _in_budget(**changes: str) -> Make:
    """A plan.json whose section budget has other values, as JSON."""
    values = {key: json.dumps(value) for key, value in plans.budget_json().items()} | changes
    return _in_plan(sections='{"budget": {' + ", ".join(f'"{key}": {value}' for key, value in values.items()) + "}}")


def _in_trial(**changes: Any) -> Make:
    """The same, where one trial has other values."""
    return _in_budget(tried=json.dumps([{**plans.budget_json()["tried"][0], **changes}]))


def _in_its_key(**changes: Any) -> Make:
    """The same, where the key has other values."""
    return _in_budget(key=json.dumps({**plans.budget_json()["key"], **changes}))


MORE_BUDGETS: dict[str, Make] = {
    f"{key} {name}": _in_budget(**{key: value})
    for key in ("key", "ended", "iteration", "nbytes", "chosen", "tried", "auto")
    for name, value in NUMBERS.items()
}
for _name in ("chosen null", "auto null", "iteration float"):  # what may be
    MORE_BUDGETS.pop(_name)
BUDGETS: dict[str, Make] = {
    "a setting above the limits": _in_budget(chosen='{"writers": 9, "transfers": 1, "uncommitted": 1}'),
    "a trial above the limits": _in_trial(transfers=5),
    "no writers": _in_budget(chosen='{"writers": 0, "transfers": 1, "uncommitted": 1}'),
    "many trials": _in_budget(tried=json.dumps(plans.budget_json()["tried"] * 22)),
    "a time of zero": _in_trial(period=0.0),
    "a time that is too long": _in_trial(commit=1e10),
    "a store that writes on the terminal": _in_its_key(store="ext4 at /\x1b[2J"),
    "a bound that is no text": _in_its_key(bound=1),
    "an unknown end": _in_budget(ended='"tired"'),
    "an unknown key": _in_budget(load='"pickle"'),
    "an interval of zero": _in_budget(auto=json.dumps(plans.section_json(interval=0))),
}


# --- what is no file

KINDS = ("link", "loop", "fifo", "directory", "socket", "device")


def replace(path: Path, kind: str) -> None:
    """Puts something else in a file's (or a directory's) place; a link leads to what was there before."""
    aside = path.parent.parent / f"aside-{path.name}"
    os.rename(path, aside)
    if kind == "link":
        path.symlink_to(aside)
    elif kind == "loop":
        path.symlink_to(path)
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    elif kind == "socket":
        # Bound by a short name: theirs are bounded.
        with tempfile.TemporaryDirectory(dir=path.parent.parent) as folder, socket.socket(socket.AF_UNIX) as made:
            before = os.open(".", os.O_RDONLY)
            try:
                os.chdir(folder)
                made.bind("s")
            finally:
                os.fchdir(before)
                os.close(before)
            os.rename(f"{folder}/s", path)
    else:
        path.symlink_to("/dev/zero")
