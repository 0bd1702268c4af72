"""Attachments of a checkpoint: the states of the user's objects (``extra=``) and of the process's random number generators (``rng=``).
Each rank saves its own, as a named value of its record. They may have another size at each checkpoint."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from deepfreeze.errors import CorruptError, EngineError, OptionError
from deepfreeze.format import attachment_tree
from deepfreeze.format.attachment_tree import OWN
from deepfreeze.format.record import MAX_RECORD
from deepfreeze.format.strict_json import DAMAGED
from deepfreeze.frameworks.framework import Generators
from deepfreeze.state.callbacks.states import NAMES, CallbackStates, adapter_of
from deepfreeze.state.epoch_under_way import EpochUnderWay

# In version 1 of the format attachments were the bytes of a per-rank tensor of this path, padded with zeros.
PATH_1 = "extra/0"
# The most bytes that attachments may take: a record of 256 MiB has the rank's extents, seeds and checksums too.
_MAX_NBYTES = MAX_RECORD // 4 * 3


@dataclass(frozen=True)
class SavedAttachments:
    """The attachments in a checkpoint, as far as one rank needs them. ``by_rank``: what ``Attachments.take`` has returned on a rank of the
    writing job, by its number; ``world_size``: the number of ranks of the writing job; ``where``: the file that messages name."""

    by_rank: Mapping[int, bytes]
    world_size: int
    where: object


def kind(thing: Any) -> str:
    """The kind of an object in ``extra=``, as text. What the ranks do together follows from the kinds of their objects, so these must be
    the same on all ranks."""
    adapter = None if _has_methods(thing) else adapter_of(thing)
    if adapter is not None:
        return adapter.__name__
    return "an object that changes at the end of an epoch" if _changes_at_epochs(thing) else "an object"


class Attachments:
    """This rank's attachments. True (``bool()``) if there are any.

    - ``asked_for``: whether the user has asked for some by ``extra=`` or ``rng=``.
    - ``callbacks``: the adapters of Keras's own callbacks. ``of_epochs``: the names of the objects whose state may change at the end of an
      epoch: callbacks, Keras's or the user's, and DeepFreeze's own ``EpochUnderWay``.
    - ``every_rank``: whether an object takes the states of all ranks.
    - ``epoch_open``: whether the states that were loaded are of the last step of an epoch whose end the callbacks had not seen."""

    def __init__(self, objects: Mapping[str, Any] | None, generators: Generators | None) -> None:
        """``objects``: the user's, by name; ``generators``: None if random number generators are not saved. ``OptionError`` for an
        object without ``load_state_dict()``, or without both ``state_dict()`` and ``state_at(step)``, that is none of Keras's callbacks."""
        self._objects: dict[str, Any] = {}
        adapters = {}
        for name, thing in (objects or {}).items():
            self._objects[name] = thing
            if _has_methods(thing):
                continue
            adapter = adapter_of(thing)
            if adapter is None:
                raise _no_methods(name, thing)
            self._objects[name] = adapters[name] = adapter(thing)
        self.callbacks = CallbackStates(adapters)
        self.of_epochs = [name for name, thing in (objects or {}).items() if _changes_at_epochs(thing)]
        self._generators = generators
        self._take_all = {name for name, thing in self._objects.items() if _takes_all(thing.load_state_dict)}
        own = {name for name in self._objects if name.startswith(OWN)}
        self.asked_for = generators is not None or self._objects.keys() != own
        self._own_alone = self._objects.keys() - self._take_all - adapters.keys() - own
        self.every_rank = bool(self._take_all)
        self.epoch_open = False

    def __bool__(self) -> bool:
        return bool(self._objects) or self._generators is not None

    def check(self, step: int) -> int:
        """How many bytes the present states take. ``OptionError`` unless the objects give them, and they can be saved. Called before the
        first checkpoint, so that nothing is written if they can't."""
        nbytes = len(self._encoded(step))
        if nbytes > _MAX_NBYTES:
            raise OptionError(where="extra=", expected=_AT_MOST, found=f"{nbytes} bytes", todo=_SAVE_ELSEWHERE)
        return nbytes

    def take(self, step: int, epoch_open: bool = False) -> bytes:
        """The states at ``step``, the training's present one. ``epoch_open``: this step is the last one of an epoch, whose end callbacks
        have not seen. ``EngineError`` if the states can't be saved: an object's method raises, or they have become too large for a record,
        or have a value that ``format/state_tree`` can't encode."""
        try:
            data = self._encoded(step, epoch_open)
        except OptionError as error:
            raise EngineError(where=error.where, expected=error.expected, found=error.found, todo=error.todo) from error
        if len(data) > _MAX_NBYTES:
            raise EngineError(where="extra=", expected=_AT_MOST, found=f"{len(data)} bytes", todo=_SAVE_ELSEWHERE)
        return data

    def load(self, saved: SavedAttachments, rank: int, world_size: int) -> list[str]:
        """Gives objects and generators their states. Objects that have no saved state stay as they are.

        An object that takes its own state alone gets the one that this rank has saved. On a rank that the writing job did not have it
        gets rank 0's, and the generators get new seeds, which are drawn from rank 0's states. ``rank`` of ``world_size``: this process's.

        Returns the names of the objects for which some rank's states are left over, because the job has fewer ranks than the writing
        one and the object takes its own state alone: an object of the user's, for Keras's callbacks have the same state on all ranks, or
        serve one rank alone. ``CorruptError`` if there are no states in ``saved``."""
        is_new = rank >= saved.world_size
        own = 0 if is_new else rank
        trees = {number: attachment_tree.decode(data, saved.where) for number, data in saved.by_rank.items()}
        self.epoch_open = attachment_tree.is_epoch_open(trees[own])
        for name, thing in self._objects.items():
            if name not in trees[own]["objects"]:
                continue
            if name in self._take_all:
                found = (trees.get(number, {"objects": {}}) for number in range(saved.world_size))
                states = [tree["objects"].get(name) for tree in found]
                thing.load_state_dict(states, rank, world_size)
            else:
                thing.load_state_dict(trees[own]["objects"][name])
        if self._generators is not None and trees[own]["rng"]:
            self._load_generators(trees[own]["rng"], saved, rank if is_new else None)
        if world_size >= saved.world_size:
            return []
        return [name for name in self._objects if name in trees[own]["objects"] and name in self._own_alone]

    def _load_generators(self, states: dict[str, Any], saved: SavedAttachments, new_rank: int | None) -> None:
        """``new_rank``: the number of a rank that the writing job did not have; None on the others."""
        assert self._generators is not None
        try:
            if new_rank is None:
                self._generators.set(states)
            else:
                # A hash of them: as a list of integers they would take many times their size.
                entropy = np.frombuffer(hashlib.sha256(saved.by_rank[0]).digest(), "<u4").tolist()
                self._generators.seed(np.random.SeedSequence(entropy, spawn_key=(new_rank,)))
        except (KeyError, TypeError, ValueError) as error:
            expected = "states of random number generators"
            raise CorruptError(where=saved.where, expected=expected, found=str(error), todo=DAMAGED) from None

    def _encoded(self, step: int, epoch_open: bool = False) -> bytes:
        states = {name: _state(name, thing, step) for name, thing in self._objects.items()}
        return attachment_tree.encode(states, {} if self._generators is None else self._generators.states(), epoch_open)


_AT_MOST = f"states of at most {_MAX_NBYTES} bytes, for they are kept in the rank's record"
_SAVE_ELSEWHERE = "save a large value in a file of its own, and the file's name in the state"


def _state(name: str, thing: Any, step: int) -> Any:
    """The state of one of the user's objects. ``OptionError`` if its method raises."""
    method = "state_at" if _has(thing, "state_at") else "state_dict"
    try:
        return thing.state_at(step) if method == "state_at" else thing.state_dict()
    except Exception as error:
        found = f"{type(error).__name__}: {error}"[:300]
        expected, todo = f"its state from {method}()", f"mend {method}() of the {type(thing).__name__}"
        raise OptionError(where=f"extra[{name!r}]", expected=expected, found=found, todo=todo) from error


def _has_methods(thing: Any) -> bool:
    gives = _has(thing, "state_dict") or _has(thing, "state_at")
    return gives and _has(thing, "load_state_dict")


def _no_methods(name: str, thing: Any) -> OptionError:
    """The error for an object that can't be saved."""
    kind = type(thing).__name__
    expected, todo = "an object with state_dict() and load_state_dict()", "give the object these two methods"
    if _has(thing, "on_epoch_end"):
        known = ", ".join(NAMES)
        expected = f"an object with state_dict() and load_state_dict(), or one of Keras's callbacks that have a state ({known})"
        todo = f"give a class that inherits from {kind} these two methods, or leave it out of extra= if it has no state"
    return OptionError(where=f"extra[{name!r}]", expected=expected, found=f"a {kind}", todo=todo)


def _has(thing: Any, method: str) -> bool:
    return callable(getattr(thing, method, None))


def _changes_at_epochs(thing: Any) -> bool:
    return _has(thing, "on_epoch_end") or isinstance(thing, EpochUnderWay)


def _takes_all(load_state_dict: Any) -> bool:
    """Whether the method has the three positional parameters (states of all ranks, rank, world size), none with a default."""
    try:
        parameters = inspect.signature(load_state_dict).parameters.values()
    except (TypeError, ValueError):
        return False  # a method written in C that does not tell its parameters
    needed = [
        parameter
        for parameter in parameters
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        and parameter.default is parameter.empty
    ]
    return len(needed) == 3
