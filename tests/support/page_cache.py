"""Works out which files a crash would leave after a sequence of recorded file operations. native/testing/record_env.h and
tests/support/recorder.py record them.

A killed process leaves everything that it has done. A machine that loses power leaves what was made durable, and any part of the rest:

- Each unsynced write or change of a file's size may be on the disk or not; of a write also a part.
- Each unsynced change of a directory may be on the disk or not, in any order.
- A rename is one change, also between two directories: it is on the disk as a whole or not at all.
- Only an fsync of a directory makes its changes durable. A rename between two directories is durable when both are synced.

The last rule is less than most file systems promise.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

_HEAD = struct.Struct("<cBHHHQQQ")
_TRUNCATE = 2  # OpenMode::kTruncate
_SECTOR = 512


@dataclass(frozen=True)
class Op:
    """One entry of the record. ``kind`` is one of those of record_env.h, or "L" (a hard link, ``second`` is the file's new name; only
    Python makes them), or "mark" (a note of a test in ``path``)."""

    kind: str
    path: str = ""
    second: str = ""
    handle: int = 0
    argument: int = 0
    mode: int = 0
    data: bytes = b""

    def __str__(self) -> str:
        what = f"{len(self.data)} bytes at {self.argument}" if self.kind == "W" else self.second
        return f"{self.kind} {self.path or self.handle} {what}".rstrip()


def read_log(path: Path) -> list[Op]:
    """All entries, in the order in which they happened."""
    log, at, ops = path.read_bytes(), 0, []
    while at < len(log):
        kind, mode, _, first, second, handle, argument, size = _HEAD.unpack_from(log, at)
        at += _HEAD.size
        texts = log[at : at + first].decode(), log[at + first : at + first + second].decode()
        at += first + second
        name = "mark" if kind == b"!" else kind.decode()
        ops.append(Op(name, *texts, handle, argument, mode, log[at : at + size]))
        at += size
    return ops


def entry(op: Op) -> bytes:
    """The bytes of an operation's entry in the record, where a mark has the kind "!"."""
    first, second = op.path.encode(), op.second.encode()
    head = op.kind.encode(), op.mode, 0, len(first), len(second), op.handle, op.argument, len(op.data)
    return _HEAD.pack(*head) + first + second + op.data


def append_mark(fd: int, text: str) -> None:
    """Appends a mark to the record: by now something has happened that the test knows of, for example a commit."""
    os.write(fd, entry(Op("!", text)))


@dataclass(eq=False)
class _File:
    live: bytearray = field(default_factory=bytearray)
    durable: bytes = b""
    pending: list[tuple[int, bytes] | int] = field(default_factory=list)  # (offset, data) of a write, or a size

    def change(self, what: tuple[int, bytes] | int) -> None:
        _change(self.live, what)
        self.pending.append(what)

    def sync(self) -> None:
        self.durable, self.pending = bytes(self.live), []

    def survivor(self, choose: Random | None) -> bytes:
        data = bytearray(self.durable)
        for what in self.pending if choose is not None else ():
            luck = choose.random()
            if isinstance(what, tuple) and luck < 0.15:
                offset, written = what
                what = offset, written[: choose.randrange(0, len(written) + 1, _SECTOR)]  # torn
            elif luck < 0.5:
                continue
            _change(data, what)
        return bytes(data)


@dataclass(eq=False)
class _Folder:
    live: dict[str, _File | _Folder] = field(default_factory=dict)
    durable: dict[str, _File | _Folder] = field(default_factory=dict)
    pending: list[_Change] = field(default_factory=list)

    def sync(self) -> None:
        for change in self.pending:
            change.unsynced.discard(self)
        for folder in {self, *(folder for change in self.pending for folder in change.parts)}:
            folder.settle()

    def settle(self) -> None:
        """Makes the synced changes durable, except those of a name for which an earlier change is not durable yet."""
        left, names = [], set()
        for change in self.pending:
            entries = change.parts[self]
            if change.unsynced or not names.isdisjoint(entries):
                left.append(change)
                names.update(entries)
            else:
                _enter(self.durable, entries)
        self.pending = left

    def survivor(self, luck: _Luck) -> dict[str, _File | _Folder]:
        entries = dict(self.durable)
        for change in self.pending:
            if luck.has(change):
                _enter(entries, change.parts[self])
        return entries


class _Change:
    """One change of a folder, or of two folders at once (a rename between them). By folder: the new file or folder of each name, None
    if the name goes. After a crash the whole change is on the disk or none of it."""

    def __init__(self, parts: dict[_Folder, dict[str, _File | _Folder | None]]) -> None:
        self.parts, self.unsynced = parts, set(parts)
        for folder, entries in parts.items():
            _enter(folder.live, entries)
            folder.pending.append(self)


class _Luck:
    """Decides, once for each change and each file, what of it a loss of power leaves. With ``choose=None`` nothing unsynced is left."""

    def __init__(self, choose: Random | None) -> None:
        self._choose, self._decided = choose, {}

    def has(self, change: _Change) -> bool:
        if self._choose is None:
            return False
        if change not in self._decided:
            self._decided[change] = self._choose.random() < 0.5
        return self._decided[change]

    def contents(self, file: _File) -> bytes:
        if file not in self._decided:
            self._decided[file] = file.survivor(self._choose)
        return self._decided[file]


def _change(data: bytearray, what: tuple[int, bytes] | int) -> None:
    offset, written = what if isinstance(what, tuple) else (what, b"")
    data.extend(bytes(max(0, offset + len(written) - len(data))))
    if isinstance(what, tuple):
        data[offset : offset + len(written)] = written
    else:
        del data[what:]


def _enter(entries: dict, what: dict) -> None:
    for name, node in what.items():
        if node is None:
            entries.pop(name, None)
        else:
            entries[name] = node


class Disk:
    """The files below some folders after the operations that were applied so far."""

    def __init__(self, *folders: Path) -> None:
        """Reads the folders; what is in them counts as durable."""
        self._roots = {str(folder): _load(folder) for folder in folders}
        self._open: dict[int, _File] = {}

    def apply(self, op: Op) -> None:
        if op.kind in "WTAS":
            self._on_file(self._open[op.handle], op)
        elif op.kind == "Y":
            folder = self._find(op.path)
            assert isinstance(folder, _Folder)
            folder.sync()
        elif op.kind != "mark":
            self._on_name(op)

    @contextmanager
    def half(self, op: Op) -> Iterator[None]:
        """Within the ``with`` block the first half of this write is applied; afterwards it is undone."""
        file = self._open[op.handle]
        before = bytearray(file.live), list(file.pending)
        file.change((op.argument, op.data[: len(op.data) // 2]))
        yield
        file.live, file.pending = before

    def killed(self) -> dict[str, bytes | None]:
        """The files after SIGKILL of all processes, by path: their bytes, None for a directory."""
        return dict(self._walk(lambda folder: folder.live, lambda file: bytes(file.live)))

    def lost_power(self, choose: Random | None) -> dict[str, bytes | None]:
        """The same after a loss of power. With None nothing of what was not synced is left, else a random part of it."""
        luck = _Luck(choose)
        return dict(self._walk(lambda folder: folder.survivor(luck), luck.contents))

    def _on_file(self, file: _File, op: Op) -> None:
        if op.kind == "W":
            file.change((op.argument, op.data))
        elif op.kind == "S":
            file.sync()
        elif op.kind == "T" or op.argument > len(file.live):
            file.change(op.argument)

    def _on_name(self, op: Op) -> None:
        folder, name = self._parent(op.path)
        if op.kind == "O":
            file = folder.live.get(name)
            if file is None:
                file = _File()
                _Change({folder: {name: file}})
            assert isinstance(file, _File)
            if op.mode == _TRUNCATE and file.live:
                file.change(0)
            self._open[op.handle] = file
        elif op.kind in "RL":
            other, target = self._parent(op.second)
            new = {target: folder.live[name]}
            if op.kind == "L":
                _Change({other: new})
            elif other is folder:
                _Change({folder: {name: None, **new}})
            else:
                _Change({folder: {name: None}, other: new})
        elif op.kind == "M" and name not in folder.live:
            _Change({folder: {name: _Folder()}})
        elif op.kind in "UD" and name in folder.live:
            _Change({folder: {name: None}})

    def _parent(self, path: str) -> tuple[_Folder, str]:
        parent, name = os.path.split(path)
        folder = self._find(parent)
        assert isinstance(folder, _Folder), path
        return folder, name

    def _find(self, path: str) -> _File | _Folder:
        for root, node in self._roots.items():
            if path == root or path.startswith(root + os.sep):
                found: _File | _Folder = node
                for part in os.path.relpath(path, root).split(os.sep) if path != root else ():
                    assert isinstance(found, _Folder)
                    found = found.live[part]
                return found
        raise KeyError(path)

    def _walk(self, entries, contents) -> Iterator[tuple[str, bytes | None]]:
        def below(path: str, node: _File | _Folder) -> Iterator[tuple[str, bytes | None]]:
            if isinstance(node, _File):
                yield path, contents(node)
                return
            yield path, None
            for name, child in sorted(entries(node).items()):
                yield from below(f"{path}{os.sep}{name}", child)

        for root, node in self._roots.items():
            yield from below(root, node)


def _load(folder: Path) -> _Folder:
    node = _Folder()
    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False):
            node.live[entry.name] = _load(Path(entry.path))
        else:
            node.live[entry.name] = _File(bytearray(Path(entry.path).read_bytes()))
            node.live[entry.name].sync()
    node.durable = dict(node.live)
    return node


def write_out(state: dict[str, bytes | None], move: dict[str, str]) -> None:
    """Writes the files of a state to the disk. ``move``: for each root folder the path that takes its place. Other files there stay."""
    for path, data in state.items():
        root = next(root for root in move if path == root or path.startswith(root + os.sep))
        target = move[root] + path[len(root) :]
        if data is None:
            os.makedirs(target, exist_ok=True)
        else:
            with open(target, "wb") as file:
                file.write(data)
