"""``configs/ATTEMPT.json``: the JSON from which Keras builds a model again (docs/format.md, "Configuration"). Reading it evaluates
nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from deepfreeze.format.sealed_json import KEY, seal, unseal

FORMAT = 1
MAX_CONFIG = 64 << 20  # bytes: a bound on what a reader allocates; ResNet-50's configuration has 80 KB


@dataclass(frozen=True)
class ModelConfig:
    """The configuration of the model that ``attempt`` trains in run ``run_id`` (both ids: 32 hexadecimal digits). ``value``: the
    object in the ``config.json`` that Keras writes for the model."""

    run_id: str
    attempt: str
    value: Mapping[str, Any] = field(hash=False)

    @property
    def text(self) -> str:
        """The text of a ``.keras`` file's ``config.json``; ASCII. ValueError for a value that JSON does not have, such as NaN."""
        return json.dumps(self.value, allow_nan=False)

    def to_bytes(self) -> bytes:
        """The configuration file's bytes. ValueError for a value that JSON does not have, such as NaN."""
        head = json.dumps({"format": FORMAT, "run_id": self.run_id, "attempt": self.attempt})
        return seal(f'{head.removesuffix("}")}, "config": {self.text}')

    @classmethod
    def from_bytes(cls, data: bytes, where: object) -> ModelConfig:
        """Parses a configuration file. CorruptError (at ``where``) unless ``to_bytes`` would give exactly ``data``."""
        top = unseal(data, where, MAX_CONFIG)
        top.version(FORMAT)
        top.keys("format", "run_id", "attempt", "config", KEY, ordered=True)
        inner = top.child("config")
        inner.text("class_name")
        config = cls(top.hexadecimal("run_id", 32), top.hexadecimal("attempt", 32), inner.plain())
        try:
            rewritten = config.to_bytes()
        except (ValueError, RecursionError):
            rewritten = b""  # 1e400 was read as infinity, which JSON does not have
        if rewritten != data:
            raise top.error("JSON as Python's json module writes it", "JSON with other blanks or spellings")
        return config
