"""Which checkpoint a model's values come from: remembered when they are assigned, asked for when a run begins.

What is remembered hangs on the variables and not on the model, because layers change their model in between: a base whose
weights were read may end up below a new classifier (``keras.Model(base.input, head(base.output))``). Nothing is kept alive.

Uses Keras objects, imports neither Keras nor TensorFlow.
"""

from __future__ import annotations

import functools
import itertools
import weakref
from collections.abc import Iterable
from typing import Any

from deepfreeze.format.run_file import Parent

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


def parent_of(variables: Iterable[Any]) -> Parent | None:
    """The checkpoint that any of these variables was given its value from last; None if there is none."""
    found = [_remembered[id(variable)] for variable in variables if id(variable) in _remembered]
    return max(found, key=lambda one: one[1])[2] if found else None


def _forget(key: int, gone: weakref.ref[Any]) -> None:
    # By the time of this call another variable may have the same id.
    if key in _remembered and _remembered[key][0] is gone:
        del _remembered[key]
