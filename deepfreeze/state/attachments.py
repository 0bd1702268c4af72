"""Attachments of a checkpoint: the states of the user's objects (``extra=``) and of the process's random number generators (``rng=``).
Each rank saves its own, in its record and not in the model file."""

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
# Bytes by which states may grow beyond twice their size at the start. The private bytes of a record have one size for all checkpoints of
# an attempt.
_SPARE = 1 << 16
# The most bytes that attachments may take: a record of 256 MiB has the rank's extents, seeds and checksums too.
_MAX_NBYTES = MAX_RECORD // 4 * 3


class Generators(Protocol):
    """The process's random number generators: Python's, numpy's, TensorFlow's, Keras's. The training thread calls the methods, never
    while a step runs, so that no generator is used meanwhile."""

    def states(self) -> dict[str, Any]:
        """The state of each generator that exists, by name ("numpy"): a tree that ``format/state_tree`` can encode. Called once for
        each checkpoint of this rank, and once before the first to measure the states. Changes no state."""

    def set(self, states: dict[str, Any]) -> None:
        """Gives each generator its state, and makes the generators that have a state and don't exist yet. ``states``: read from a
        checkpoint, so KeyError, TypeError or ValueError for a state that is none. Called at most once, when a run is resumed."""

    def seed(self, sequence: np.random.SeedSequence) -> None:
        """Gives each generator that exists a new state, drawn from ``sequence``. Called at most once, in place of ``set``, on a rank
        that the writing job did not have."""


class Attachments:
    """This rank's attachments. True (``bool()``) if there are any."""

    def __init__(self, objects: Mapping[str, Any] | None, generators: Generators | None) -> None:
        """``objects``: the user's, by name; ``generators``: None if random number generators are not saved. ``OptionError`` for an
        object without ``state_dict()`` or ``load_state_dict()``."""
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
        """Bytes to reserve for this rank's attachments in each checkpoint: twice their present size and 64 KiB more, in whole pages of
        4 KiB. ``OptionError`` if their present size is larger than a record can hold."""
        now = len(self._encoded())
        if now > _MAX_NBYTES:
            raise OptionError(
                where="extra=",
                expected=f"states of at most {_MAX_NBYTES} bytes, for they are kept in the rank's record",
                found=f"{now} bytes",
                todo="save a large value in a file of its own, and the file's name in the state",
            )
        return min(-(-(2 * now + _SPARE) // 4096) * 4096, _MAX_NBYTES)

    def spec(self, capacity: int) -> TensorSpec:
        """The attachments as a per-rank tensor of bytes, shape ``(capacity,)``. ``capacity``: the greatest ``nbytes()`` of all ranks, so
        that all ranks have the same structure."""
        self._capacity = capacity
        return TensorSpec(NAME, "uint8", (capacity,), PER_RANK)

    def take(self) -> bytes:
        """The present states as ``capacity`` bytes, padded with zeros. ``EngineError`` if they have become larger than that,
        ``OptionError`` for a state that ``format/state_tree`` can't encode."""
        data = self._encoded()
        if len(data) > self._capacity:
            raise EngineError(
                where="extra=",
                expected=f"states of at most {self._capacity} bytes, twice their size at the start and 64 KiB more",
                found=f"{len(data)} bytes",
                todo="save what grows elsewhere, or start again: each start measures the states anew",
            )
        return data.ljust(self._capacity, b"\0")

    def load(self, data: bytes, where: object, new_rank: int | None) -> None:
        """Gives objects and generators the states in ``data``, which ``take`` has made. Objects that have no saved state stay as they are.

        ``new_rank``: None for a rank that saved ``data`` itself; the number of a rank that the writing job did not have, for which
        ``data`` is rank 0's. The objects of such a rank get rank 0's states, its generators new seeds that are drawn from rank 0's
        states. ``CorruptError`` (at ``where``) if ``data`` has no states."""
        tree = state_tree.decode(data, where)
        if not isinstance(tree, dict) or not all(isinstance(tree.get(key), dict) for key in ("objects", "rng")):
            found = "a tree without them"
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
