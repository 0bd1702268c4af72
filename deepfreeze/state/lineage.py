"""Remembers which checkpoint a model's values come from. ``restore`` and ``transfer`` note it when they assign values; a training asks
for it when its run begins.

It is noted for each variable and not for the model, because a variable may get into another model in between: a base whose
weights were restored may be put below a new classifier (``keras.Model(base.input, head(base.output))``). The notes keep no variable
alive.

Uses Keras objects, imports neither Keras nor TensorFlow.
"""

from __future__ import annotations

import functools
import itertools
import weakref
from collections.abc import Iterable
from typing import Any

from deepfreeze.format.run_file import Parent

# By the variable's id(): the variable, the number of the note (later notes have greater numbers), the checkpoint.
_remembered: dict[int, tuple[weakref.ref[Any], int, Parent]] = {}
_count = itertools.count()


def remember(variables: Iterable[Any], parent: Parent) -> None:
    """Notes that these variables have just got their values from ``parent``."""
    number = next(_count)
    for variable in variables:
        try:
            alive = weakref.ref(variable, functools.partial(_forget, id(variable)))
        except TypeError:
            continue  # not a variable: all variables of Keras and TensorFlow can be referenced weakly
        _remembered[id(variable)] = (alive, number, parent)


def parent_of(variables: Iterable[Any]) -> Parent | None:
    """The checkpoint of the latest note about any of these variables; None if there is no note."""
    notes = [_remembered[id(variable)] for variable in variables if id(variable) in _remembered]
    return max(notes, key=lambda note: note[1])[2] if notes else None


def count() -> int:
    """A number between those of the notes so far and those of later notes."""
    return next(_count)


def came_from(run_id: str, variables: Iterable[Any], since: int) -> bool:
    """Whether a note says of any of these variables that its values come from the run with this id. ``since``: a number of ``count``;
    earlier notes do not matter."""
    notes = [_remembered[id(variable)] for variable in variables if id(variable) in _remembered]
    return any(number > since and parent.run_id == run_id for _, number, parent in notes)


def _forget(key: int, gone: weakref.ref[Any]) -> None:
    # By the time of this call another variable may have the same id.
    if key in _remembered and _remembered[key][0] is gone:
        del _remembered[key]
