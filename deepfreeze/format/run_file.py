"""``run.json``: a run's id, the time when the run was made, and the checkpoint that it was seeded from (docs/format.md, "Run")."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import Any

from deepfreeze.format.sealed_json import KEY, ONE_LINE, seal, unseal
from deepfreeze.format.strict_json import Fields, is_printable, parse_object

FORMAT = 1
MAX_RUN_FILE = 64 << 10  # bytes: a bound on what a reader allocates; the path of a parent may be long
MAX_PATH = 4096  # characters, the most that Linux allows: a bound on the size of run.json
LOST = "restore the file from a copy, or write it anew: its run_id is in every manifest.json of the run"


@dataclass(frozen=True)
class Parent:
    """The checkpoint that a run was seeded from: the run's model had its values when the run began.

    ``path`` is the absolute path that the checkpoint's run had then; the run may have been moved since. ``run_id`` and ``attempt``
    (32 hexadecimal digits each) never change.
    """

    path: str
    run_id: str
    step: int
    attempt: str

    @classmethod
    def at(cls, path: str | os.PathLike[str], run_id: str, step: int, attempt: str) -> Parent:
        """A parent with the path made absolute. Characters that can't be printed become "?", and the path is cut to ``MAX_PATH``
        characters: people read the path, programs compare the ids."""
        text = "".join(c if is_printable(c) else "?" for c in os.path.abspath(path))
        return cls(text[:MAX_PATH], run_id, step, attempt)

    @classmethod
    def from_fields(cls, fields: Fields) -> Parent:
        """Reads the JSON object that ``to_json`` makes. CorruptError for any other object."""
        fields.keys("path", "run_id", "step", "attempt")
        path = fields.text("path")
        if len(path) > MAX_PATH:
            raise fields.error(f"a path of at most {MAX_PATH} characters", f"{len(path)} characters")
        return cls(path, fields.hexadecimal("run_id", 32), fields.integer("step"), fields.hexadecimal("attempt", 32))

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)

    def __str__(self) -> str:
        return f"{self.path}@{self.step}"


@dataclass(frozen=True)
class RunFile:
    """The content of run.json. ``created``: a time in UTC, such as 2026-11-21T03:35:58Z; ``parent``: the checkpoint that the run was
    seeded from, None if it began with values of its own."""

    run_id: str
    created: str
    parent: Parent | None = None

    def to_bytes(self) -> bytes:
        """The file's bytes."""
        value: dict[str, Any] = {"format": FORMAT, "run_id": self.run_id, "created": self.created}
        if self.parent is not None:
            value["parent"] = self.parent.to_json()
        return seal(json.dumps(value).removesuffix("}"))

    @classmethod
    def from_bytes(cls, data: bytes, where: object) -> RunFile:
        """Parses the file's bytes. CorruptError (at ``where``) if they are damaged, NewerError if a newer version wrote them."""
        # Early versions wrote run.json without a checksum.
        sealed = ONE_LINE.search(data, max(0, len(data) - 64)) is not None
        top = unseal(data, where, MAX_RUN_FILE, todo=LOST) if sealed else Fields(parse_object(data, where), where)
        top.version(FORMAT)
        seeded = "parent" in top.plain()
        top.keys("format", "run_id", "created", *(["parent"] if seeded else []), *([KEY] if sealed else []))
        parent = Parent.from_fields(top.child("parent")) if seeded else None
        return cls(top.hexadecimal("run_id", 32), top.time("created"), parent)


def utc_now() -> str:
    """The time, in UTC, to the second, like 2026-11-21T03:35:58Z."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
