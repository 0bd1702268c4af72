"""What a training has to remember besides its model: objects with ``state_dict()`` and ``load_state_dict()``, and the states of
the process's random number generators. Each rank's own; kept in its record, not in the Keras file.

Uses TensorFlow and Keras where the process has them loaded, imports neither.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from deepfreeze.core import state_tree
from deepfreeze.core.errors import CorruptError, EngineError, OptionError
from deepfreeze.core.fields import DAMAGED
from deepfreeze.core.record import MAX_RECORD
from deepfreeze.core.tensors import PER_RANK, TensorSpec

NAME = "deepfreeze/extra"
PATH = "extra/0"
# The key of what tf.random.set_seed sets, beside the generators' own.
_SEED = "tensorflow_seed"
# Room to grow into: a record's private part has one size for all checkpoints of an attempt.
_SPARE = 1 << 16
# Bytes of ``extra=`` states that fit into a record of 256 MiB, beside the rank's extents, seeds and checksums.
_MOST = MAX_RECORD // 4 * 3


class Extras:
    """Named objects, and with ``rng="all"`` the random number generators of Python, numpy and TensorFlow, and Keras's own."""

    def __init__(self, objects: Mapping[str, Any] | None, rng: str | None) -> None:
        """``OptionError`` for an object that lacks one of the two methods."""
        self._objects = dict(objects or {})
        for name, thing in self._objects.items():
            if not all(callable(getattr(thing, method, None)) for method in ("state_dict", "load_state_dict")):
                todo = "give the object these two methods"
                expected, found = "an object with state_dict() and load_state_dict()", f"a {type(thing).__name__}"
                raise OptionError(where=f"extra[{name!r}]", expected=expected, found=found, todo=todo)
        self._rng = rng == "all"
        self._capacity = 0

    def __bool__(self) -> bool:
        return bool(self._objects) or self._rng

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
        if self._rng and tree["rng"]:
            entropy = np.frombuffer(data[: len(data) // 4 * 4], "<u4").tolist()
            try:
                if new_rank is None:
                    _set_generators(tree["rng"])
                else:
                    _seed_generators(np.random.SeedSequence(entropy, spawn_key=(new_rank,)))
            except (KeyError, TypeError, ValueError) as error:
                expected = "states of random number generators"
                raise CorruptError(where=where, expected=expected, found=str(error), todo=DAMAGED) from None

    def _encoded(self) -> bytes:
        states = {name: thing.state_dict() for name, thing in self._objects.items()}
        tree = {"objects": states, "rng": _generators() if self._rng else {}}
        return state_tree.encode(tree, "extra")


def _generators() -> dict[str, Any]:
    """The states, by kind; of frameworks those that exist."""
    kind, keys, place, has_gauss, gauss = np.random.get_state(legacy=True)
    found: dict[str, Any] = {"python": random.getstate(), "numpy": (kind, keys, place, has_gauss, gauss)}
    for name, variable in _framework_generators().items():
        found[name] = variable.numpy()
    context = _seeded_context()
    if context is not None:
        found[_SEED] = (int(context._seed), context._rng.getstate())
    return found


def _set_generators(states: dict[str, Any]) -> None:
    _make_generators(states)
    random.setstate(states["python"])
    np.random.set_state(states["numpy"])
    for name, variable in _framework_generators().items():
        if name in states:
            variable.assign(states[name])
    if _SEED in states and "tensorflow" in sys.modules:
        seed, state = states[_SEED]
        sys.modules["tensorflow"].random.set_seed(seed)
        context = _seeded_context()
        if context is not None:
            context._rng.setstate(state)


def _seed_generators(sequence: np.random.SeedSequence) -> None:
    words = sequence.generate_state(9)  # of 32 bits
    random.seed(int(words[0]))
    np.random.seed(words[1:2])
    for n, variable in enumerate(_framework_generators().values()):
        own = variable.numpy()
        own.flat[:] = words[2 + 3 * n : 2 + 3 * n + own.size] >> 1  # key, or seed, and counter; they may be signed
        variable.assign(own)
    if _seeded_context() is not None:
        sys.modules["tensorflow"].random.set_seed(int(words[8]))


def _seeded_context() -> Any:
    """TensorFlow's own object with the seed of ``tf.random.set_seed`` and the generator behind it, from which operations without
    a seed get theirs; None if no seed was set. Setting it is public, asking for it is not."""
    module: Any = sys.modules.get("tensorflow.python.eager.context")
    context = module.context() if module is not None else None
    known = getattr(context, "_seed", None) is not None and hasattr(context, "_rng")
    return context if known else None


def _framework_generators() -> dict[str, Any]:
    """The variables that hold the states of TensorFlow's global generator, and of Keras 3's, if they exist: neither has a public
    name that does not make one, and making one draws numbers."""
    found = {}
    ops: Any = sys.modules.get("tensorflow.python.ops.stateful_random_ops")
    if getattr(ops, "global_generator", None) is not None:
        found["tensorflow"] = ops.global_generator.state
    keras: Any = sys.modules.get("keras.src.backend.common.global_state")
    seed = keras.get_global_attribute("global_seed_generator") if keras is not None else None
    if seed is not None:
        found["keras"] = seed.state.value
    return found


def _make_generators(names: Iterable[str]) -> None:
    """Those that had a state when it was saved and don't exist yet; the state that they begin with does not matter."""
    missing = set(names) - _framework_generators().keys()
    if "tensorflow" in missing and "tensorflow" in sys.modules:
        random_ops: Any = sys.modules["tensorflow"].random
        random_ops.set_global_generator(random_ops.Generator.from_seed(0))
    if "keras" in missing and "keras" in sys.modules:
        # An unseeded draw makes it.
        sys.modules["keras"].random.uniform(())
