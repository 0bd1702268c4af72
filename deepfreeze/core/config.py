"""The callback's options, checked once, before anything is touched."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from deepfreeze.core.errors import OptionError


@dataclass(frozen=True)
class Options:
    """See ``deepfreeze.Checkpoint`` for what they mean."""

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
    check_replicas: int = 100
    on_divergence: str = "warn"
    slots: int = 2
    writers: int = 2
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
        """Raises ``OptionError`` for an unknown name, naming the nearest, and for a value that can't be meant."""
        known = [field.name for field in fields(Options)]
        for name in given:
            if name not in known:
                near = difflib.get_close_matches(name, ["every", *known], 1)
                hint = f"did you mean {near[0]}=?" if near else f"the options are {', '.join(known)}"
                raise OptionError(
                    where=f"{name}=", expected="an option of Checkpoint", found="an unknown name", todo=hint.rstrip("?")
                )
        options = Options(**given)
        for name in ("keep", "in_flight", "slots", "writers"):
            _check(name, given.get(name, 1), _is_count, "a whole number, 1 or more")
        _check("chunk_bytes", options.chunk_bytes, lambda n: _is_count(n) and n % 4096 == 0, "a multiple of 4096 bytes")
        _check("nice", options.nice, lambda n: type(n) is int and 0 <= n <= 19, "a whole number from 0 to 19")
        _check("timeout", options.timeout, lambda t: type(t) in (int, float) and 0 < t < 1e9, "seconds, more than 0")
        _check("check_replicas", options.check_replicas, lambda k: _is_count(k) or k == 0, "a whole number, 0 or more")
        for name, allowed in _CHOICES.items():
            _check(name, getattr(options, name), allowed.__contains__, "one of " + ", ".join(map(repr, allowed)))
        _check("extra", options.extra, lambda e: e is None or isinstance(e, Mapping), "a mapping of names to objects")
        _check("local", options.local, _is_place, '"auto", a directory or None')
        return options

    def shared(self) -> dict[str, str]:
        """What must be the same on all ranks, as text. A node may have a local tier of its own, and a rank objects of its own."""
        found = {field.name: repr(getattr(self, field.name)) for field in fields(self) if field.name not in _OWN}
        return {**found, "local": "None" if self.local is None else "given", "extra": repr(sorted(self.extra or ()))}

    def with_optimizer(self, optimizer: Any) -> Options:
        """The same, with another optimizer counting the steps."""
        return replace(self, optimizer=optimizer)


_OWN = frozenset({"local", "world", "optimizer", "extra", "verbose"})
_CHOICES: dict[str, tuple] = {
    "resume": ("auto", "required", "off"),
    "wait_for": ("captured", "local", "external"),
    "on_error": ("raise", "warn"),
    "final": (True, False),
    "state": ("full", "weights"),
    "on_sigterm": ("checkpoint", "ignore"),
    "when_full": ("wait", "skip"),
    "on_divergence": ("warn", "raise"),
    "placement": ("per_layer", "contiguous"),
    "capture": ("auto", "graph"),
    "rng": (None, "all"),
    "save_config": (True, False),
}


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _is_place(value: Any) -> bool:
    return value is None or isinstance(value, (str, os.PathLike))


def _check(name: str, value: Any, good: Any, expected: str) -> None:
    if not good(value):
        raise OptionError(where=f"{name}=", expected=expected, found=repr(value), todo=f"pass {name}= as described")
