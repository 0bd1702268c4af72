"""A second implementation of a store: blobs in this process's memory, which are put whole, read by range and deleted, and never renamed, as
an object store has them. A checkpoint's name is a small blob of its own that says where its blobs are; it is put last and goes first."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from deepfreeze.errors import CorruptError, LockedError
from deepfreeze.format import names
from deepfreeze.format.record import Record
from deepfreeze.format.strict_json import DAMAGED
from deepfreeze.store.ranges import Ranges
from deepfreeze.store.store import Store
from tests.support import files

PLACES: dict[str, MemoryStore] = {}  # what "memory://NAME" leads to


def at(text: str) -> MemoryStore:
    """The store of this name, for ``deepfreeze.store.add("memory", at)``."""
    name = text.partition(":")[2].strip("/")
    return PLACES.setdefault(name, MemoryStore(Path(f"memory:/{name}")))


def copy_of(run: Path, text: str) -> MemoryStore:
    """The store of the name ``text``, with a copy of all files of a run that is a directory."""
    store = at(text)
    store.make()
    for file in run.rglob("*"):
        if file.is_file():
            store.put(str(file.relative_to(run)), file.read_bytes())
    return store


class MemoryRanges(Ranges):
    """A blob as it was when it was opened."""

    def __init__(self, path: Path, blob: bytes) -> None:
        self.path, self.size, self._blob = path, len(blob), blob
        self._closed = False

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        self._closed = True

    def read(self, into: np.ndarray, offset: int) -> int:
        data = np.frombuffer(self._blob, np.uint8)[offset : offset + len(into)]
        into[: len(data)] = data
        return len(data)


class MemoryStore(Store):
    """Implements ``deepfreeze.store.Store``. ``blobs``: by key; ``pointers``: the name of a checkpoint -> the folder of its blobs."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.blobs: dict[str, bytes] = {}
        self.pointers: dict[str, str] = {}
        self._made = False
        self._lock = threading.Lock()

    def _key(self, name: str) -> str:
        folder, _, base = name.rpartition("/")
        return f"{self.pointers.get(folder, folder)}/{base}" if folder else base

    def _get(self, name: str) -> bytes:
        key = self._key(name)
        if key in self.blobs:
            return self.blobs[key]
        folder = name.rpartition("/")[0]
        raise (NotADirectoryError if folder in self.blobs else FileNotFoundError)(2, "no such blob", name)

    def _names(self) -> Iterator[str]:
        """All names that there are: of blobs outside of checkpoints, and of checkpoints."""
        hidden = set(self.pointers.values())
        yield from (key for key in self.blobs if key.rpartition("/")[0] not in hidden)
        yield from self.pointers

    def list(self, folder: str = "") -> list[str]:
        if not self._made:
            raise FileNotFoundError(2, "no such place", str(self.path))
        if not folder:
            return sorted({name.partition("/")[0] for name in self._names()})
        if folder in self.blobs:
            raise NotADirectoryError(20, "a blob", folder)
        within = f"{self.pointers.get(folder, folder)}/"
        found = {name.removeprefix(within).partition("/")[0] for name in self.blobs if name.startswith(within)}
        found |= {name.removeprefix(f"{folder}/") for name in self.pointers if name.startswith(f"{folder}/")}
        if not found:
            raise FileNotFoundError(2, "no such folder", folder)
        return sorted(found)

    def has(self, name: str) -> bool:
        if not name:
            return self._made
        return (
            name in self.pointers
            or self._key(name) in self.blobs
            or any(n.startswith(f"{name}/") for n in self._names())
        )

    def read(self, name: str, limit: int) -> bytes:
        data = self._get(name)
        if len(data) > limit:
            found = f"{len(data)} bytes"
            raise CorruptError(where=self.where(name), expected=f"at most {limit} bytes", found=found, todo=DAMAGED)
        return data

    def open(self, name: str) -> MemoryRanges:
        return MemoryRanges(self.where(name), self._get(name))

    def nbytes(self, folder: str) -> int | None:
        try:
            return sum(len(self._get(f"{folder}/{name}")) for name in self.list(folder))
        except (FileNotFoundError, NotADirectoryError):
            return None

    def put(self, name: str, data: bytes) -> None:
        self.blobs[self._key(name)] = bytes(data)

    def create(self, name: str, data: bytes) -> bool:
        # As a put on the condition that there is none, which object stores have.
        return self.blobs.setdefault(self._key(name), bytes(data)) is data

    def remove(self, name: str) -> None:
        self._get(name)
        del self.blobs[self._key(name)]

    def append(self, name: str) -> _Growing:
        if self._key(name) in self.blobs:
            raise FileExistsError(17, "there is one", name)
        self.blobs[self._key(name)] = b""
        return _Growing(self.blobs, self._key(name))

    def publish(self, step: int, attempt: str) -> None:
        partial = names.partial_dir(step, attempt)
        listed = self.list(partial)
        entries, gathered = [], b""
        for name in sorted(name for name in listed if names.parse_record_file(name) is not None):
            data = self._get(f"{partial}/{name}")
            record = Record.from_bytes(data, self.where(f"{partial}/{name}"))
            identity = record.identity
            entries.append({
                "rank": identity.rank, "bytes": record.nbytes, "extents": len(record.extents), "private": len(record.private),
                "values": record.values_size, "size": len(data), "crc32c": f"{int.from_bytes(data[-4:], 'little'):08x}",
            })  # fmt: skip
            gathered += data
        if not entries or len(entries) != identity.world_size:
            found = f"{len(entries)} records"
            raise CorruptError(where=self.where(partial), expected="all ranks' records", found=found, todo=DAMAGED)
        text = files.manifest(
            step=step,
            structure=identity.structure,
            file_size=identity.file_size,
            records=entries,
            attempt=attempt,
            values="{}",
        )
        self.blobs[f"{partial}/{names.RECORDS_FILE}"] = gathered
        self.blobs[f"{partial}/{names.MANIFEST_FILE}"] = text
        for name in [name for name in self.list(partial) if names.parse_record_file(name) is not None]:
            del self.blobs[f"{partial}/{name}"]
        self.pointers[names.step_dir(step)] = partial

    def abandon(self, folder: str, to: str) -> None:
        if folder not in self.pointers:
            raise FileNotFoundError(2, "no such checkpoint", folder)
        self.pointers[to] = self.pointers[folder]
        del self.pointers[folder]

    def discard(self, folder: str, step: int) -> bool:
        within = self.pointers.pop(folder, folder)
        for key in [key for key in self.blobs if key.startswith(f"{within}/")]:
            del self.blobs[key]
        return True

    def sweep(self) -> None:
        pass  # nothing is left of a discard

    def make(self) -> bool:
        made, self._made = not self._made, True
        return made

    def unmake(self) -> None:
        self._made = bool(self.blobs)

    def lock(self, world_size: int = 1) -> _Held:
        if not self._lock.acquire(blocking=False):
            raise LockedError(where=self.path, expected="a free lock", found="it is held", todo="wait")
        return _Held(self._lock)


class _Held:
    def __init__(self, lock: threading.Lock) -> None:
        self._held: threading.Lock | None = lock

    def release(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            held.release()

    def __enter__(self) -> _Held:
        return self

    def __exit__(self, *exception: object) -> None:
        self.release()


class _Growing:
    def __init__(self, blobs: dict[str, bytes], key: str) -> None:
        self._blobs, self._key = blobs, key

    def write(self, data: bytes) -> int:
        self._blobs[self._key] += data
        return len(data)

    def close(self) -> None:
        pass
