"""What a training has to remember besides its model: objects with ``state_dict()`` and ``load_state_dict()``, and the states of
the process's random number generators. Each rank's own; kept in its record, not in the Keras file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from deepfreeze.errors import CorruptError, EngineError, OptionError
from deepfreeze.format import state_tree
from deepfreeze.format.record import MAX_RECORD
from deepfreeze.format.strict_json import DAMAGED
from deepfreeze.format.tensors import PER_RANK, TensorSpec

NAME = "deepfreeze/extra"
PATH = "extra/0"
# Room to grow into: a record's private part has one size for all checkpoints of an attempt.
_SPARE = 1 << 16
# Bytes of ``extra=`` states that fit into a record of 256 MiB, beside the rank's extents, seeds and checksums.
_MOST = MAX_RECORD // 4 * 3


class Generators(Protocol):
    """The process's random number generators. The training thread calls these methods, never while a step runs."""

    def states(self) -> dict[str, Any]:
        """The state of each generator that exists, by name: values that ``format/state_tree`` can keep."""

    def set(self, states: dict[str, Any]) -> None:
        """Gives each generator its state, and makes those that have a state and don't exist yet."""

    def seed(self, sequence: np.random.SeedSequence) -> None:
        """Gives each generator that exists a state of its own, drawn from ``sequence``."""


class Attachments:
    """Named objects, and random number generators if there are any to remember."""

    def __init__(self, objects: Mapping[str, Any] | None, generators: Generators | None) -> None:
        """``OptionError`` for an object that lacks one of the two methods."""
        self._objects = dict(objects or {})
        for name, thing in self._objects.items():
            if not all(callable(getattr(thing, method, None)) for method in ("state_dict", "load_state_dict")):
                todo = "give the object these two methods"
                expected, found = "an object with state_dict() and load_state_dict()", f"a {type(thing).__name__}"
                raise OptionError(where=f"extra[{name!r}]", expected=expected, found=found, todo=todo)
        self._generators = generators
        self._capacity = 0

    def __bool__(self) -> bool:
        return bool(self._objects) or self._generators is not None

    def nbytes(self) -> int:
        """Bytes to keep for them from now on: what they take at present, twice, and some. ``OptionError`` if that can't be."""
        now = len(self._encoded())
        if now > _MOST:
            raise OptionError(
                where="extra=",
                expected=f"states of at most {_MOST} bytes, for they are kept in the rank's record",
                found=f"{now} bytes",
                todo="save what is large in a file of its own, and the file's name in the state",
            )
        return min(-(-(2 * now + _SPARE) // 4096) * 4096, _MOST)

    def spec(self, capacity: int) -> TensorSpec:
        """As a tensor of bytes; ``capacity`` is the greatest of all ranks' ``nbytes``."""
        self._capacity = capacity
        return TensorSpec(NAME, "uint8", (capacity,), PER_RANK)

    def take(self) -> bytes:
        """The states as they are now, padded to the capacity. ``EngineError`` if they have outgrown it."""
        data = self._encoded()
        if len(data) > self._capacity:
            raise EngineError(
                where="extra=",
                expected=f"states of at most {self._capacity} bytes, twice of what they had at the start and some",
                found=f"{len(data)} bytes",
                todo="save what grows elsewhere, or start again: the room is measured anew",
            )
        return data.ljust(self._capacity, b"\0")

    def load(self, data: bytes, where: object, new_rank: int | None) -> None:
        """Gives the states back; what is drawn from now on is drawn from there. ``new_rank``: for a rank that the writing job did
        not have, which gets rank 0's states; its generators get seeds of their own, drawn from rank 0's states.
        ``CorruptError`` if ``data`` is no such thing."""
        tree = state_tree.decode(data, where)
        if not isinstance(tree, dict) or not all(isinstance(tree.get(part), dict) for part in ("objects", "rng")):
            found = "something else"
            raise CorruptError(where=where, expected="states of objects and generators", found=found, todo=DAMAGED)
        for name, state in tree["objects"].items():
            if name in self._objects:
                self._objects[name].load_state_dict(state)
        if self._generators is not None and tree["rng"]:
            entropy = np.frombuffer(data[: len(data) // 4 * 4], "<u4").tolist()
            try:
                if new_rank is None:
                    self._generators.set(tree["rng"])
                else:
                    self._generators.seed(np.random.SeedSequence(entropy, spawn_key=(new_rank,)))
            except (KeyError, TypeError, ValueError) as error:
                expected = "states of random number generators"
                raise CorruptError(where=where, expected=expected, found=str(error), todo=DAMAGED) from None

    def _encoded(self) -> bytes:
        states = {name: thing.state_dict() for name, thing in self._objects.items()}
        tree = {"objects": states, "rng": {} if self._generators is None else self._generators.states()}
        return state_tree.encode(tree, "extra")
