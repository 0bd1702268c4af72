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
    """The configuration of the model that ``attempt`` trains in run ``run_id``. ``value``: Keras's JSON object."""

    run_id: str
    attempt: str
    value: Mapping[str, Any] = field(hash=False)

    @property
    def text(self) -> str:
        """As it stands in a ``.keras`` file's ``config.json``; ASCII. ValueError if JSON can't say it."""
        return json.dumps(self.value, allow_nan=False)

    def to_bytes(self) -> bytes:
        """The configuration file's bytes. ValueError if JSON can't say it."""
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
        made = cls(top.hexadecimal("run_id", 32), top.hexadecimal("attempt", 32), inner.plain())
        try:
            again = made.to_bytes()
        except (ValueError, RecursionError):
            again = b""  # 1e400 is read as infinity, which JSON can't say
        if again != data:
            raise top.error("JSON as Python's json module writes it", "something else")
        return made
