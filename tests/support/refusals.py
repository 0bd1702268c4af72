"""Asserts the promise about wrong inputs: they raise a ``deepfreeze.Error`` that says where, what was expected, what was found and what
to do, and they change nothing, neither a file of a folder nor a value of a model or its optimizer."""

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
    """Asserts that ``action()`` raises an error of this kind whose parts contain the given texts, and that all files below ``folder`` and
    all values of ``model`` stay as they were, byte for byte. Returns the error."""
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
    """Asserts that this is a ``deepfreeze.Error`` with all four parts, that the parts contain these texts, and that the message is
    well-formed."""
    assert isinstance(error, deepfreeze.Error)
    for part in PARTS:
        said = getattr(error, part)
        assert said and (part == "where" or not said.endswith(".")), f"{part} of {error}"
        assert wanted.get(part, "") in said, f"{part}: {said!r} does not have {wanted[part]!r}"
    assert re.fullmatch(r".+: expected .+; found .+\. [^a-z].*\.", str(error), re.DOTALL), str(error)


def contents(folder: Path | None) -> dict[str, bytes | None]:
    """Everything below a folder, by path: a file's bytes, None for a directory. ``lock`` and ``owner`` are left out: a start that is
    refused has taken the run's lock before, and leaves both files."""
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
