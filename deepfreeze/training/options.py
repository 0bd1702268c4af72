"""The options of ``deepfreeze.Checkpoint`` and ``deepfreeze.capture``. They are checked before a run or a model is touched."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from numbers import Integral, Real
from typing import Any

from deepfreeze.errors import OptionError
from deepfreeze.freeze.settings import SaverSettings
from deepfreeze.state.keras_objects import is_optimizer


@dataclass(frozen=True)
class Options:
    """The options, with their defaults. ``deepfreeze.Checkpoint`` describes them."""

    local: str | os.PathLike | None = "auto"
    keep: int = 2
    resume: str = "auto"
    wait_for: str = "captured"
    in_flight: int = 2
    on_error: str = "raise"
    final: bool = True
    state: str = "full"
    on_sigterm: str = "checkpoint"
    when_full: str = "wait"
    check_replicas: int | None = 0
    on_divergence: str = "auto"
    slots: int = 2
    writers: int = 8
    chunk_bytes: int = 4 << 20
    nice: int = 10
    placement: str = "per_layer"
    capture: str = "auto"
    save_config: bool = False
    optimizer: Any = None
    extra: Any = None
    rng: str | None = None
    timeout: float = 600.0
    world: Any = None
    verbose: int = 1

    @staticmethod
    def of(**given: Any) -> Options:
        """The options with the values ``given``, by name. numpy's numbers become Python's own, and ``local`` becomes an absolute path.
        ``OptionError`` for an unknown name (the message has the nearest known one) and for a value that an option can't have."""
        known = {field.name: field.default for field in fields(Options)}
        for name in given:
            if name not in known:
                raise _unknown(name, ["every", *known])
        made: dict[str, Any] = known | given
        for name, (low, high, step) in _INTEGERS.items():
            made[name] = _integer(name, made[name], low, high, step)
        for name, allowed in _CHOICES.items():
            _check(name, made[name], _is_one_of(made[name], allowed), "one of " + ", ".join(map(repr, allowed)))
        if made["check_replicas"] is not None:
            made["check_replicas"] = _integer("check_replicas", made["check_replicas"], 0, 2**31 - 1, 1, " or None")
        seconds = made["timeout"]
        _check("timeout", seconds, _is_number(seconds, Real) and 0 < seconds < 1e9, "seconds, more than 0")
        made["timeout"] = float(seconds)
        _check("extra", made["extra"], _is_named(made["extra"]), "a mapping of names to objects")
        expected = "one of the model's own optimizers, model.generator_optimizer for example"
        _check("optimizer", made["optimizer"], made["optimizer"] is None or is_optimizer(made["optimizer"]), expected)
        _check("local", made["local"], _is_local(made["local"]), '"auto", a directory or None')
        if made["local"] not in (None, "auto"):
            # Made absolute now, because the program may change its working directory later.
            made["local"] = os.path.abspath(made["local"])
        return Options(**made)

    def shared(self) -> dict[str, str]:
        """The values that must be the same on all ranks, by name, as text. Of ``local`` only whether there is a local tier (its path may
        differ between nodes), and of ``extra`` only the names of the objects."""
        found = {field.name: repr(getattr(self, field.name)) for field in fields(self) if field.name not in _PER_RANK}
        return {**found, "local": "None" if self.local is None else "given", "extra": repr(sorted(self.extra or ()))}

    def saver(self) -> SaverSettings:
        """The options that the saver and its engine are given."""
        return SaverSettings(**{field.name: getattr(self, field.name) for field in fields(SaverSettings)})

    def with_optimizer(self, optimizer: Any) -> Options:
        """The same options, with ``optimizer`` as the one whose updates are the steps."""
        return replace(self, optimizer=optimizer)


# Options that may differ between ranks, or are objects without a text to compare.
_PER_RANK = frozenset({"local", "world", "optimizer", "extra", "verbose"})
# Name -> (least value, greatest value, a number that divides the value). The bounds keep a value within the engine's 32 bits, in which
# 2**32 + 1 would become 1.
_INTEGERS: dict[str, tuple[int, int, int]] = {
    "keep": (1, 2**31 - 1, 1),
    "in_flight": (1, 1024, 1),
    "slots": (1, 1024, 1),
    "writers": (1, 256, 1),
    "chunk_bytes": (4096, 1 << 30, 4096),
    "nice": (0, 19, 1),
    "verbose": (0, 1, 1),
}
_CHOICES: dict[str, tuple] = {
    "resume": ("auto", "required", "off"),
    "wait_for": ("captured", "local", "external"),
    "on_error": ("raise", "warn"),
    "final": (True, False),
    "state": ("full", "weights"),
    "on_sigterm": ("checkpoint", "ignore"),
    "when_full": ("wait", "skip"),
    "on_divergence": ("auto", "warn", "raise"),
    "placement": ("per_layer", "contiguous"),
    "capture": ("auto", "graph"),
    "rng": (None, "all"),
    "save_config": (True, False),
}
# Options of other libraries, and the advice for a user who passes one of them.
_FOREIGN = {
    "memory": "memory is bounded by in_flight=, in the training process, and slots=, on the local tier",
    "save_freq": "did you mean every=",
    "max_to_keep": "did you mean keep=",
}


def _unknown(name: str, known: list[str]) -> OptionError:
    near = difflib.get_close_matches(name, known, 1)
    todo = f"did you mean {near[0]}=" if near else f"the options are {', '.join(known)}"
    todo = _FOREIGN.get(name, todo)
    return OptionError(where=f"{name}=", expected="an option of Checkpoint", found="an unknown name", todo=todo)


def _is_number(value: Any, kind: type) -> bool:
    """Whether ``value`` is a number of this kind (``Integral`` or ``Real``), of Python or numpy. True and False are none."""
    return isinstance(value, kind) and not isinstance(value, bool)


def _integer(name: str, value: Any, low: int, high: int, step: int, otherwise: str = "") -> int:
    """``value`` as Python's own int. ``otherwise``: text for the error, what the option may be instead of a number."""
    expected = f"a whole number from {low} to {high}" + (f", a multiple of {step}" if step > 1 else "") + otherwise
    # Users of Keras are used to verbose=True and verbose=False.
    number = _is_number(value, Integral) or (name == "verbose" and isinstance(value, bool))
    _check(name, value, number and low <= value <= high and value % step == 0, expected)
    return int(value)


def _is_one_of(value: Any, allowed: tuple) -> bool:
    return any(type(value) is type(one) and value == one for one in allowed)  # 1 is not True


def _is_named(value: Any) -> bool:
    return value is None or (isinstance(value, Mapping) and all(isinstance(name, str) for name in value))


def _is_local(value: Any) -> bool:
    # "" is refused: os.path.abspath would make the working directory of it, and the user's shell variable was probably not set.
    return value is None or (isinstance(value, (str, os.PathLike)) and os.fspath(value) not in ("", b""))


def _check(name: str, value: Any, good: bool, expected: str) -> None:
    if not good:
        found, todo = repr(value)[:200], f"pass {name}= as described"
        raise OptionError(where=f"{name}=", expected=expected, found=found, todo=todo)
