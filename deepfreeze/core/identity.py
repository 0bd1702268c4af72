"""``run.json``: which run a directory is, since when, and what it was seeded from (docs/format.md, "Run")."""

from __future__ import annotations

import contextlib
import json
import os
import re
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from deepfreeze.core import crc32c, durable, names
from deepfreeze.core.errors import CorruptError, NotFoundError
from deepfreeze.core.fields import Fields, parse_object, read_small
from deepfreeze.core.lineage import Parent

FORMAT = 1
MAX_RUN_FILE = 64 << 10  # its parent's path may be long
# The end of run.json has one spelling, so that no byte of the file is uncovered.
_LAST_KEY = re.compile(rb', "crc32c": "([0-9a-f]{8})"\}\n\Z')
_LOST = "restore the file from a copy, or write it anew: its run_id is in every manifest.json of the run"


@dataclass(frozen=True)
class Identity:
    """What run.json says. ``created`` is a time in UTC, ``parent`` the checkpoint that the run was seeded from, if it was."""

    run_id: str
    created: str
    parent: Parent | None = None

    def to_bytes(self) -> bytes:
        """The file's bytes."""
        value: dict[str, Any] = {"format": FORMAT, "run_id": self.run_id, "created": self.created}
        if self.parent is not None:
            value["parent"] = self.parent.to_json()
        text = json.dumps(value).removesuffix("}").encode()
        return text + f', "crc32c": "{crc32c.value(text):08x}"}}\n'.encode()

    @classmethod
    def from_bytes(cls, data: bytes, file: Path) -> Identity:
        """Parses the file's bytes. CorruptError if they are damaged."""
        # Runs made before there was a checksum have none.
        tail = _LAST_KEY.search(data, max(0, len(data) - 32))
        actual = crc32c.value(data[: tail.start()]) if tail else 0
        if tail and int(tail[1], 16) != actual:
            expected = f"CRC32C {tail[1].decode()} of bytes 0 to {tail.start()}"
            raise CorruptError(where=file, expected=expected, found=f"{actual:08x}", todo=_LOST)
        top = Fields(parse_object(data, file), file)
        top.version(FORMAT)
        seeded = "parent" in top.plain()
        top.keys("format", "run_id", "created", *(["parent"] if seeded else []), *(["crc32c"] if tail else []))
        parent = Parent.from_fields(top.child("parent")) if seeded else None
        return cls(top.hexadecimal("run_id", 32), top.time("created"), parent)


def read(root: Path) -> Identity:
    """A run's identity. NotFoundError if the directory is no run, CorruptError if run.json is damaged."""
    file = root / names.RUN_FILE
    try:
        data = read_small(file, MAX_RUN_FILE)
    except (FileNotFoundError, NotADirectoryError):
        found = "no such directory" if not root.exists() else "a directory without one"
        if root.exists() and not root.is_dir():
            found = "a file"
        todo = "check the path: it is the directory that was given to deepfreeze.Checkpoint"
        raise NotFoundError(where=root, expected=f"a run, with {names.RUN_FILE}", found=found, todo=todo) from None
    except OSError as error:
        raise durable.refused(root, error) from error
    return Identity.from_bytes(data, file)


def make(root: Path) -> None:
    """Gives a directory an identity, unless it has one. CorruptError if it has none though there are checkpoints: a new one would
    make them another run's. OSError if refused."""
    target = root / names.RUN_FILE
    if target.exists():
        return
    steps = [name for name in os.listdir(root) if names.parse_step_dir(name) is not None]
    if steps:
        expected = f"the identity of a run with {len(steps)} checkpoints"
        raise CorruptError(where=target, expected=expected, found="no such file", todo=_LOST)
    run_id = names.new_id()
    # Two jobs may start in one new directory at once. The run has the id that was linked first, for both of them.
    temporary = root / names.temporary(f"{names.RUN_FILE}.{run_id}")
    try:
        durable.write(temporary, Identity(run_id, utc_now()).to_bytes())
        try:
            os.link(temporary, target)
        except FileExistsError:
            pass
        except OSError:
            os.replace(temporary, target)  # a file system without hard links
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()
    durable.sync_dir(root)


def utc_now() -> str:
    """The time, in UTC, to the second, like 2026-11-21T03:35:58Z."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
