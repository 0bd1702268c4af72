"""What is proved about every wrong input: a ``deepfreeze.Error`` that says where, what was expected, what was found and what to do,
and nothing is lost and nothing changed: no file of a folder, no value of a model or its optimizer."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deepfreeze

PARTS = ("where", "expected", "found", "todo")


def refused(
    action: Callable[[], Any],
    kind: type[deepfreeze.Error],
    *,
    where: object = "",
    expected: str = "",
    found: str = "",
    todo: str = "",
    folder: Path | None = None,
    model: Any = None,
) -> deepfreeze.Error:
    """Does what is to be refused, and returns the error. Each part of its message is there and has the given text in it; all
    below ``folder`` and in ``model`` is as it was, byte for byte."""
    files, values = contents(folder), _values(model)
    with pytest.raises(kind) as caught:
        action()
    error = caught.value
    assert_four_parts(error, where=str(where), expected=expected, found=found, todo=todo)
    after = contents(folder)
    assert after.keys() == files.keys(), f"came: {after.keys() - files.keys()}; went: {files.keys() - after.keys()}"
    assert after == files
    assert [(id(v), _bytes(v)) for v, _ in values] == [(id(v), data) for v, data in values], "the model has changed"
    return error


def assert_four_parts(error: BaseException, **wanted: str) -> None:
    """A message of ours, whose parts have these texts in them, whatever the case of a sentence's first letter."""
    assert isinstance(error, deepfreeze.Error)
    for part in PARTS:
        said = getattr(error, part)
        assert said and (part == "where" or not said.endswith(".")), f"{part} of {error}"
        assert wanted.get(part, "") in said, f"{part}: {said!r} does not have {wanted[part]!r}"
    assert re.fullmatch(r".+: expected .+; found .+\. [^a-z].*\.", str(error), re.DOTALL), str(error)


def contents(folder: Path | None) -> dict[str, bytes | None]:
    """Everything below a folder, by path: a file's bytes, None for a directory. Not the runs' lock files, nor the owner's name: a
    start that looked at a run under its lock leaves both."""
    if folder is None:
        return {}
    found: dict[str, bytes | None] = {}
    for path, folders, names in os.walk(folder):
        found.update((os.path.join(path, name), None) for name in folders)
        for name in names:
            if name not in ("lock", "owner"):
                file = Path(path, name)
                found[str(file)] = os.readlink(file).encode() if file.is_symlink() else file.read_bytes()
    return found


def _values(model: Any) -> list[tuple[Any, bytes]]:
    if model is None:
        return []
    optimizer = getattr(model, "optimizer", None)
    own = getattr(optimizer, "variables", ())
    variables = [*model.variables, *(own() if callable(own) else own)]
    return [(variable, _bytes(variable)) for variable in variables]


def _bytes(variable: Any) -> bytes:
    return np.asarray(variable).tobytes()
