"""Which checkpoints of a run stay, and why. Pure: a rule looks at a ``History`` and changes nothing.

A rule is any object with a method ``wants(history)``, which returns the wanted steps with a reason each, as text for people. The usual ones
are in ``store.rules``; docs/guide/options.md shows how to write another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

# A checkpoint from which an attempt has resumed stays until the run has so many newer ones.
_NEWER_THAN_RESUMED = 2


@dataclass(frozen=True)
class Committed:
    """A committed checkpoint, as a rule sees it.

    - ``step``; ``attempt``: the id of the attempt that wrote it. ``time``: of the commit, in seconds since 1970, UTC. ``diverged``: whether
      the ranks' weights differed.
    - ``tags``: the names that people gave to it. ``metrics``: finite values by name, as far as they are known.
    - ``epoch``: the number of epochs done (1 for the first) of whose checkpoints this is the newest; None if it is not known to be the
      newest of one. ``measured``: the step at which the metrics were taken, ``step`` or later; None without metrics.
    - ``awaited``: its metrics may still come."""

    step: int
    attempt: str = ""
    time: int = 0
    diverged: bool = False
    tags: tuple[str, ...] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)
    epoch: int | None = None
    measured: int | None = None
    awaited: bool = False


@dataclass(frozen=True)
class History:
    """The committed checkpoints of a run, sorted by step. ``resumed``: the step from which the present attempt went on; None if no job
    has the run."""

    checkpoints: tuple[Committed, ...] = ()
    resumed: int | None = None


@dataclass(frozen=True)
class Verdict:
    """``keep``: the reason for each step that stays; ``remove``: the steps that go. Both are sorted by step."""

    keep: Mapping[int, str]
    remove: tuple[int, ...]


@runtime_checkable
class Wants(Protocol):
    """What every rule does. Two attributes are optional. ``metrics``: the names of the metrics that it asks for, so that a name which never
    comes is an error. ``late``: True if it may want a checkpoint whose metrics come after the commit; such checkpoints wait."""

    def wants(self, history: History) -> Mapping[int, str]:
        """The steps that should stay, each with the reason. Called on rank 0, in any thread, after each commit: the same history must give
        the same answer, and the call must not take long."""


def judge(history: History, rule: Any, keep_pending: int = 0) -> Verdict:
    """Which checkpoints of ``history`` stay under ``rule``, and which go. ``keep_pending``: of the checkpoints whose metrics may still come
    so many stay, the newest ones, if the rule is late. Three checkpoints stay whatever the rule says: the newest, the newest whose ranks
    agreed, and the one from which the attempt has resumed until there are two newer ones."""
    steps = {one.step for one in history.checkpoints}
    pending = [one.step for one in history.checkpoints if one.awaited][-keep_pending:] if keep_pending else []
    waits = dict.fromkeys(pending, "its metrics may come") if is_late(rule) else {}
    wanted = joined([_always(history), rule.wants(history), waits])
    keep = {step: wanted[step] for step in sorted(wanted) if step in steps}
    return Verdict(keep, tuple(sorted(steps - keep.keys())))


def _always(history: History) -> Mapping[int, str]:
    """The checkpoints that never go. A checkpoint whose ranks differed is a mixture of several models, so a run must have another one."""
    wanted: dict[int, str] = {}
    alike = [one.step for one in history.checkpoints if not one.diverged][-1:]
    if (
        history.resumed is not None
        and sum(one.step > history.resumed for one in history.checkpoints) < _NEWER_THAN_RESUMED
    ):
        wanted[history.resumed] = "resumed from it"
    wanted |= dict.fromkeys(alike, "newest whose ranks agreed")
    return wanted | {one.step: "newest" for one in history.checkpoints[-1:]}


def joined(parts: Iterable[Mapping[int, str]]) -> dict[int, str]:
    """The steps of all parts, each with its reasons. A reason that begins another one ("newest", "newest 2") is left out."""
    found: dict[int, list[str]] = {}
    for part in parts:
        for step, reason in part.items():
            found.setdefault(step, []).append(reason)
    return {step: "; ".join(_distinct(reasons)) for step, reasons in found.items()}


def _distinct(reasons: list[str]) -> list[str]:
    unique = list(dict.fromkeys(part for reason in reasons for part in reason.split("; ")))
    return [one for one in unique if not any(other != one and other.startswith(f"{one} ") for other in unique)]


def metrics_of(rule: Any) -> tuple[str, ...]:
    """The names of the metrics that a rule asks for."""
    return tuple(getattr(rule, "metrics", ()))


def is_late(rule: Any) -> bool:
    """Whether a rule may want a checkpoint whose metrics come after the commit."""
    return bool(getattr(rule, "late", False))


def text_of(rule: Any) -> str:
    """A rule as text that is the same on every rank. A class without a ``__repr__`` of its own gives its name: the usual text has the
    object's address."""
    plain = type(rule).__repr__ is object.__repr__
    return f"{type(rule).__module__}.{type(rule).__qualname__}()" if plain else repr(rule)
