"""Model configurations written by hand, from docs/format.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support import files

SEQUENTIAL = {"module": "keras", "class_name": "Sequential", "config": {"name": "nt3", "layers": []}}


def config_bytes(value: Any = SEQUENTIAL, attempt: str = files.ATTEMPT, run_id: str = files.RUN_ID) -> bytes:
    """The bytes of ``configs/ATTEMPT.json``."""
    return sign(json.dumps({"format": 1, "run_id": run_id, "attempt": attempt, "config": value}).encode())


def sign(text: bytes) -> bytes:
    """A JSON object's text with the key ``crc32c`` added, which checks it."""
    body = text.removesuffix(b"}")
    return body + f', "crc32c": "{files.crc(body):08x}"}}\n'.encode()


def write_config(run: Path, data: bytes | None = None, attempt: str = files.ATTEMPT) -> Path:
    """Writes ``configs/ATTEMPT.json``."""
    (run / "configs").mkdir(exist_ok=True)
    file = run / "configs" / f"{attempt}.json"
    file.write_bytes(config_bytes(attempt=attempt) if data is None else data)
    return file
