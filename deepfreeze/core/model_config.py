"""What Keras needs to build a model again: the JSON that it would put into a ``.keras`` file, stored with the run.

It is data: writing it calls Keras, reading it evaluates nothing. Uses Keras objects, imports neither Keras nor TensorFlow.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from deepfreeze.core import crc32c
from deepfreeze.core.errors import CorruptError, UnsupportedError
from deepfreeze.core.fields import DAMAGED, Fields, parse_object
from deepfreeze.core.keras_model import optimizers, saveables
from deepfreeze.core.shadow import shadowed

FORMAT = 1
MAX_CONFIG = 64 << 20  # a bound on what a reader allocates; ResNet-50's has 80 KB
# The last key has one spelling, so that no byte of the file is uncovered.
_LAST_KEY = re.compile(rb', "crc32c": "([0-9a-f]{8})"\}\n\Z')
_ASSETS = "assets/"


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
        body = f'{head.removesuffix("}")}, "config": {self.text}'.encode()
        return body + f', "crc32c": "{crc32c.value(body):08x}"}}\n'.encode()

    @classmethod
    def from_bytes(cls, data: bytes, where: object) -> ModelConfig:
        """Parses a configuration file. CorruptError (at ``where``) unless ``to_bytes`` would give exactly ``data``."""
        if len(data) > MAX_CONFIG:
            raise CorruptError(
                where=where, expected=f"at most {MAX_CONFIG} bytes", found=f"{len(data)} bytes", todo=DAMAGED
            )
        tail = _LAST_KEY.search(data, max(0, len(data) - 32))
        if tail is None:
            raise CorruptError(where=where, expected="a CRC32C as the last key", found="none", todo=DAMAGED)
        claimed, actual = int(tail[1], 16), crc32c.value(data[: tail.start()])
        if claimed != actual:
            raise CorruptError(where=where, expected=f"CRC32C {claimed:08x}", found=f"{actual:08x}", todo=DAMAGED)
        top = Fields(parse_object(data, where), where)
        top.version(FORMAT)
        top.keys("format", "run_id", "attempt", "config", "crc32c", ordered=True)
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

    @classmethod
    def of(cls, model: Any, run_id: str, attempt: str) -> ModelConfig:
        """The configuration of a Keras 3 or tf_keras model as it is now. UnsupportedError if Keras can't write it, or needs
        more than JSON to build the model again."""
        try:
            text, assets = _saved_by_keras(model)
            # Strict: what NaN stands for, each reader would have to guess.
            made = cls(run_id, attempt, parse_object(text, "config.json"))
            made.to_bytes()
        except Exception as error:  # a model's own get_config may raise anything
            expected = "a model that can be saved as .keras"
            raise _unsupported(model, expected, f"{type(error).__name__}: {error}") from error
        if assets:
            expected = "a model that Keras builds again from JSON alone"
            raise _unsupported(model, expected, f"{len(assets)} assets, {assets[0]} for one")
        return made


def _saved_by_keras(model: Any) -> tuple[bytes, list[str]]:
    """The ``config.json`` that Keras itself writes, and the names of the assets beside it, if any.

    By ``model.save``, which alone keeps objects shared that several layers share. It writes no weights: for its length no
    object has any.
    """
    objects = saveables(model)
    for optimizer in optimizers(model).values():
        objects |= saveables(optimizer)
    with tempfile.TemporaryDirectory(prefix="deepfreeze-") as folder, contextlib.ExitStack() as restore:
        for owner in objects.values():
            restore.enter_context(shadowed(owner, "save_own_variables", lambda store: None))
        file = os.path.join(folder, "config.keras")
        model.save(file)
        with zipfile.ZipFile(file) as archive:
            assets = [name for name in archive.namelist() if name.startswith(_ASSETS) and not name.endswith("/")]
            return archive.read("config.json"), assets


def _unsupported(model: Any, expected: str, found: str) -> UnsupportedError:
    todo = "leave save_config out, or give the model's own classes a get_config that JSON can hold"
    return UnsupportedError(
        where=f"the model ({type(model).__name__})", expected=expected, found=found[:500], todo=todo
    )
