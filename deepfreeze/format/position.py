"""The position of a checkpoint in the fits of its program: the manifest's named value ``position`` (docs/format.md, "Manifest")."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from deepfreeze.format.manifest_values import POSITION
from deepfreeze.format.strict_json import MAX_INT


@dataclass(frozen=True)
class Position:
    """Where in its program a training stands, as Keras has counted it.

    - ``fit``: how many fits of this run the program had ended before this one.
    - ``epoch``, ``batch``: the epoch, from 0, and how many batches of it are done.
    - ``batches``: the batches of each epoch, None if Keras does not know them. ``epochs``: the argument of ``fit``.
    - ``trained``: the batches that this fit has trained in all attempts of the job together. An epoch that a kill has interrupted begins
      again at its first batch, so ``trained`` does not follow from ``epoch`` and ``batch``."""

    fit: int
    epoch: int
    batch: int
    batches: int | None
    epochs: int
    trained: int

    def to_json(self) -> dict[str, Any]:
        """The value as plain JSON."""
        return dict(vars(self))

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Position | None:
        """The position among a manifest's named ``values``. None if there is none, or one of a form that this version does not know."""
        found = values.get(POSITION)
        names = [field.name for field in fields(cls)]
        if not isinstance(found, dict) or not all(name in found for name in names):
            return None
        numbers = {name: found[name] for name in names if not (name == "batches" and found[name] is None)}
        known = all(type(number) is int and 0 <= number <= MAX_INT for number in numbers.values())
        return cls(**{"batches": None, **numbers}) if known else None
