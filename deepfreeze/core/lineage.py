"""Which checkpoint a model's values come from: remembered when they are assigned, asked for when a run begins.

What is remembered hangs on the variables and not on the model, because layers change their model in between: a base whose
weights were read may end up below a new classifier (``keras.Model(base.input, head(base.output))``). Nothing is kept alive.

Uses Keras objects, imports neither Keras nor TensorFlow.
"""

from __future__ import annotations

import functools
import itertools
import os
import weakref
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from deepfreeze.core.fields import Fields, is_printable

MAX_PATH = 4096  # characters; what systems allow, and a bound on the size of run.json


@dataclass(frozen=True)
class Parent:
    """The checkpoint that a run was seeded from.

    ``path`` is its run's directory as it was called then (absolute; it may have moved since), ``run_id`` and ``attempt`` have
    32 hexadecimal digits and never change.
    """

    path: str
    run_id: str
    step: int
    attempt: str

    @classmethod
    def at(cls, path: str | os.PathLike[str], run_id: str, step: int, attempt: str) -> Parent:
        """With the path made absolute, and what can't be printed of it replaced: it is for people, the ids are the identity."""
        text = "".join(c if is_printable(c) else "?" for c in os.path.abspath(path))
        return cls(text[:MAX_PATH], run_id, step, attempt)

    @classmethod
    def from_fields(cls, fields: Fields) -> Parent:
        """Reads an object of a file. CorruptError if it is anything but what ``to_json`` makes."""
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


# By the variable's id: the variable, how late it was, whose value it got.
_remembered: dict[int, tuple[weakref.ref[Any], int, Parent]] = {}
_count = itertools.count()


def remember(variables: Iterable[Any], parent: Parent) -> None:
    """Notes that these variables have just got their values from ``parent``."""
    number = next(_count)
    for variable in variables:
        try:
            alive = weakref.ref(variable, functools.partial(_forget, id(variable)))
        except TypeError:
            continue  # nothing of Keras's
        _remembered[id(variable)] = (alive, number, parent)


def parent_of(model: Any) -> Parent | None:
    """The checkpoint that any variable of ``model`` was given its value from last; None if there is none."""
    try:
        variables = list(getattr(model, "variables", ()))
    except ValueError:
        return None  # tf_keras: it has none before it is built
    found = [_remembered[id(variable)] for variable in variables if id(variable) in _remembered]
    return max(found, key=lambda one: one[1])[2] if found else None


def _forget(key: int, gone: weakref.ref[Any]) -> None:
    # By the time of this call another variable may have the same id.
    if key in _remembered and _remembered[key][0] is gone:
        del _remembered[key]
