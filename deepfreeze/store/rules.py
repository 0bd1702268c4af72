"""The usual retention rules, which ``|`` joins:

    keep=Latest(2) | Spaced(steps=1000) | Best("val_loss", "min") | Tagged()

A checkpoint stays if any of the rules wants it.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from numbers import Integral, Real
from typing import Any

from deepfreeze.errors import OptionError
from deepfreeze.store.retention import History, Wants, is_late, joined, metrics_of, text_of


class Rule:
    """Base class of the rules here, and of rules of one's own that are to be joined. ``|`` joins two rules, of which one may be any object
    with ``wants``. A subclass with arguments is best a dataclass: its text, which must be the same on all ranks, then has the arguments."""

    metrics: tuple[str, ...] = ()
    late = False

    def wants(self, history: History) -> Mapping[int, str]:
        """See ``Wants.wants``."""
        raise NotImplementedError

    def __or__(self, other: Any) -> AnyOf:
        return AnyOf.of(self, other)

    def __ror__(self, other: Any) -> AnyOf:
        return AnyOf.of(other, self)

    def __repr__(self) -> str:
        own: Any = self
        values = (getattr(own, one.name) for one in fields(own)) if is_dataclass(own) else ()
        return f"{type(self).__name__}({', '.join(map(repr, values))})"


@dataclass(frozen=True, repr=False)
class AnyOf(Rule):
    """Wants what any of its rules wants. Made by ``|``."""

    rules: tuple[Any, ...]

    @staticmethod
    def of(*rules: Any) -> AnyOf:
        """The rules joined; those of an ``AnyOf`` one by one. ``OptionError`` for an object that is no rule."""
        parts = [part for rule in rules for part in (rule.rules if isinstance(rule, AnyOf) else (rule,))]
        return AnyOf(tuple(as_rule(part) for part in parts))

    @property
    def metrics(self) -> tuple[str, ...]:  # type: ignore[override]
        """The metrics that any of the rules asks for."""
        return tuple(dict.fromkeys(name for rule in self.rules for name in metrics_of(rule)))

    @property
    def late(self) -> bool:  # type: ignore[override]
        """Whether any of the rules may want a checkpoint late."""
        return any(is_late(rule) for rule in self.rules)

    def wants(self, history: History) -> Mapping[int, str]:
        """Every step that some rule wants, with all reasons."""
        return joined(rule.wants(history) for rule in self.rules)

    def __repr__(self) -> str:
        return " | ".join(map(text_of, self.rules))


@dataclass(frozen=True, repr=False)
class Latest(Rule):
    """Wants the newest ``n`` checkpoints. ``of``: another rule; the newest ``n`` of those that it wants are meant then, as with
    ``Latest(3, of=Epochs(10))``."""

    n: int = 2
    of: Any = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", _count("Latest", self.n))
        if self.of is not None:
            object.__setattr__(self, "of", as_rule(self.of, "Latest(of=)"))

    @property
    def metrics(self) -> tuple[str, ...]:  # type: ignore[override]
        """The metrics that ``of`` asks for."""
        return metrics_of(self.of)

    @property
    def late(self) -> bool:  # type: ignore[override]
        """Whether ``of`` may want a checkpoint late."""
        return is_late(self.of)

    def wants(self, history: History) -> Mapping[int, str]:
        """See ``Wants.wants``."""
        if self.of is not None:
            wanted = self.of.wants(history)
            return {step: wanted[step] for step in sorted(wanted)[-self.n :]}
        return {one.step: f"newest {self.n}" if self.n > 1 else "newest" for one in history.checkpoints[-self.n :]}

    def __repr__(self) -> str:
        return f"Latest({self.n})" if self.of is None else f"Latest({self.n}, of={text_of(self.of)})"


@dataclass(frozen=True, repr=False)
class Spaced(Rule):
    """Wants one checkpoint for each multiple of ``steps``, or of ``seconds`` since 1970 (UTC): of those to which this multiple is the
    nearest, the closest. One of the two is given."""

    steps: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        good = (self.steps is None) != (self.seconds is None)
        _require("Spaced(steps=, seconds=)", (self.steps, self.seconds), good, "one of the two")
        if self.steps is not None:
            object.__setattr__(self, "steps", _count("Spaced(steps=)", self.steps))
        else:
            good = isinstance(self.seconds, Real) and not isinstance(self.seconds, bool) and 1 <= self.seconds < 1e9
            _require("Spaced(seconds=)", self.seconds, good, "seconds, 1 or more")
            object.__setattr__(self, "seconds", float(self.seconds))  # type: ignore[arg-type]

    def __repr__(self) -> str:
        return f"Spaced(steps={self.steps})" if self.steps is not None else f"Spaced(seconds={self.seconds:g})"

    def wants(self, history: History) -> Mapping[int, str]:
        """See ``Wants.wants``."""
        best: dict[int, tuple[float, int]] = {}  # number of the multiple -> (distance, step) of the closest
        for one in history.checkpoints:
            at, space = (one.step, self.steps) if self.steps is not None else (one.time, self.seconds)
            assert space is not None
            number = math.floor(at / space + 0.5)
            if number > 0:
                best[number] = min(best.get(number, (math.inf, 0)), (abs(at - number * space), one.step))
        unit = "steps" if self.steps is not None else "seconds"
        return {step: f"every {self.steps or self.seconds:g} {unit}" for _, step in best.values()}


@dataclass(frozen=True, repr=False)
class Epochs(Rule):
    """Wants the newest checkpoint of every ``n``-th epoch: of each one with 1, of epochs 5, 10, 15 with 5."""

    n: int = 1
    late = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", _count("Epochs", self.n))

    def wants(self, history: History) -> Mapping[int, str]:
        """See ``Wants.wants``."""
        ended = (one for one in history.checkpoints if one.epoch is not None and one.epoch % self.n == 0)
        return {one.step: f"epoch {one.epoch}" for one in ended}


@dataclass(frozen=True, repr=False)
class Best(Rule):
    """Wants the ``n`` checkpoints with the best values of a metric, ``mode`` "min" or "max". Of equal values the older one is better, as
    for Keras's ``EarlyStopping`` and ``ModelCheckpoint``."""

    metric: str
    mode: str
    n: int = 1
    late = True

    def __post_init__(self) -> None:
        _require("Best(metric)", self.metric, isinstance(self.metric, str) and bool(self.metric), "a metric's name")
        _require("Best(mode)", self.mode, self.mode in ("min", "max"), "'min' or 'max'")
        object.__setattr__(self, "n", _count("Best", self.n))

    @property
    def metrics(self) -> tuple[str, ...]:  # type: ignore[override]
        """The metric."""
        return (self.metric,)

    def wants(self, history: History) -> Mapping[int, str]:
        """See ``Wants.wants``."""
        sign = 1 if self.mode == "min" else -1
        known = [one for one in history.checkpoints if math.isfinite(one.metrics.get(self.metric, math.nan))]
        ranked = sorted(known, key=lambda one: (sign * one.metrics[self.metric], one.step))[: self.n]
        return {
            one.step: f"{'best' if place == 1 else f'number {place} by'} {self.metric} {one.metrics[self.metric]:.6g}"
            for place, one in enumerate(ranked, 1)
        }


@dataclass(frozen=True, repr=False)
class Tagged(Rule):
    """Wants every checkpoint that has a tag (``deepfreeze tag RUN@STEP NAME``)."""

    def wants(self, history: History) -> Mapping[int, str]:
        """See ``Wants.wants``."""
        return {one.step: ", ".join(f"tag {name}" for name in one.tags) for one in history.checkpoints if one.tags}


def as_rule(keep: Any, where: str = "keep=") -> Any:
    """``keep`` as a rule: ``Latest(2)`` for 2, a rule as it is. ``OptionError`` (at ``where``) for anything else."""
    if isinstance(keep, Integral) and not isinstance(keep, bool):
        number = int(keep)
        _require(where, keep, 1 <= number <= 2**31 - 1, "a whole number from 1 to 2147483647, or a rule")
        return Latest(number)
    good = isinstance(keep, Wants) and not isinstance(keep, type) and callable(keep.wants)
    expected = (
        "a whole number from 1 to 2147483647, or a rule such as Latest(2) | Tagged(), an object with wants(history)"
    )
    _require(where, keep, good, expected, _instead_of(keep))
    asked = getattr(keep, "metrics", ())
    good = isinstance(asked, (tuple, list)) and all(isinstance(name, str) and name for name in asked)
    _require(f"{where}{type(keep).__name__}.metrics", asked, good, "a tuple or list of the names of metrics")
    return keep


def with_tagged(rule: Any) -> AnyOf:
    """The rule, which also wants every checkpoint that has a tag."""
    return AnyOf.of(rule, Tagged())


def _count(where: str, value: Any) -> int:
    good = isinstance(value, Integral) and not isinstance(value, bool) and 1 <= int(value) <= 2**31 - 1
    _require(where, value, good, "a whole number, 1 or more")
    return int(value)


# By the name in small letters: the rules as a line of a program has them.
_WRITTEN = {
    "best": 'Latest(2) | Best("val_loss", "min")',
    "latest": "Latest(2)",
    "epochs": "Latest(2) | Epochs(1)",
    "spaced": "Latest(2) | Spaced(steps=1000)",
    "tagged": "Latest(2) | Tagged()",
}


def _instead_of(keep: Any) -> str | None:
    """What to do for a ``keep`` that is a rule's name or class, or another text; None for other values."""
    if not isinstance(keep, (str, type)):
        return None
    name = keep if isinstance(keep, str) else keep.__name__
    if name.isdecimal():
        return f"pass the number itself: {int(name)}"
    near = difflib.get_close_matches(name.strip().lower(), _WRITTEN, 1) or ["best"]
    written = _WRITTEN[near[0]]
    names = ", ".join(sorted(part.partition("(")[0] for part in written.split(" | ")))
    return f"pass {written}, for example: from deepfreeze.store import {names}"


def _require(where: str, value: Any, good: bool, expected: str, todo: str | None = None) -> None:
    if not good:
        todo = todo or f"pass {where} as described"
        raise OptionError(where=where, expected=expected, found=repr(value)[:200], todo=todo)
