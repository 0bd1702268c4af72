"""The section ``auto`` of ``plan.json``: what the policy ``Auto`` has measured of a training, and what it has decided (docs/format.md,
"Plan")."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar

from deepfreeze.format.names import MAX_RANK, MAX_STEP
from deepfreeze.format.plan_file import REPLACED
from deepfreeze.format.strict_json import Fields
from deepfreeze.plan.checkfreq import Bounds, Profile

SECTION = "auto"
# Why an interval was chosen, as a decision's ``reason``:
# - profile: the first steps of the training were measured.
# - resumed: an earlier job of the run had chosen it.
# - store, copy, training: checkpoints cost more than the budget allows: commits have become slower; copies cost more; the training has
#   become faster.
# - slack: checkpoints cost much less than the budget allows.
# - failures: with so few failures, more checkpoints would cost more time than they save.
REASONS = ("profile", "resumed", "store", "copy", "training", "slack", "failures")

_MAX_STEPS = 2**62  # of an interval: NEVER
_LEAST = sys.float_info.min  # the least number above 0
_LEAST_TIME = 1e-9  # seconds: a step that takes no time has no interval
_MAX_TIME = 1e9  # seconds
_MAX_CORES = 1e6
_MAX_OVERHEAD = 1e18  # the longest time over the shortest


@dataclass(frozen=True)
class Conditions:
    """What a profile holds for: the section's key. ``structure``: the hash of the model's and optimizer's tensors, 64 hexadecimal digits;
    ``world_size``: ranks; ``cores``: of one rank's process; ``tier``: the kind of the local tier, as text."""

    structure: str
    world_size: int
    cores: float
    tier: str

    def difference(self, other: Conditions) -> str | None:
        """The first difference, in words ("the number of ranks was 4 and is 2"); None if there is none. ``self`` is the older one."""
        if self.structure != other.structure:
            return "the model or its optimizer has other tensors than before"
        if self.world_size != other.world_size:
            return f"the number of ranks was {self.world_size} and is {other.world_size}"
        if self.cores != other.cores:
            return f"the number of cores of a rank was {self.cores:g} and is {other.cores:g}"
        if self.tier != other.tier:
            return f"the local tier was {self.tier} and is {other.tier}"
        return None

    @classmethod
    def names(cls) -> list[str]:
        """The names of the members."""
        return _names(cls)

    @classmethod
    def of(cls, given: Fields) -> Conditions:
        """The conditions in an object that has these members, and perhaps others. CorruptError for anything else."""
        return cls(
            structure=given.hexadecimal("structure", 64),
            world_size=given.integer("world_size", 1, MAX_RANK + 1),
            cores=given.number("cores", _LEAST, _MAX_CORES),
            tier=given.text("tier"),
        )


@dataclass(frozen=True)
class Decided:
    """The ranks have agreed on an interval. ``step``: from which it counts; ``before``, ``after``: in steps, ``before`` None if there was
    none; ``reason``: one of ``REASONS``; ``rank``: the one that wished for it."""

    step: int
    before: int | None
    after: int
    reason: str
    rank: int

    @classmethod
    def _of(cls, given: Fields) -> Decided:
        given.keys(*_names(cls))
        return cls(
            step=given.integer("step", 0, MAX_STEP),
            before=_steps_or_none(given, "before"),
            after=given.integer("after", 1, _MAX_STEPS),
            reason=given.one_of("reason", REASONS),
            rank=given.integer("rank", 0, MAX_RANK),
        )


@dataclass(frozen=True)
class Window:
    """The overhead over four intervals. ``step``: the last one of them; ``interval``: in steps; ``overhead``: by what fraction checkpoints
    have made the training longer (0.035: 3.5 %), below 0 within noise; ``low``, ``high``: its 95 % interval."""

    step: int
    interval: int
    overhead: float
    low: float
    high: float

    @classmethod
    def _of(cls, given: Fields) -> Window:
        given.keys(*_names(cls))
        overhead = given.number("overhead", -_MAX_OVERHEAD, _MAX_OVERHEAD)
        return cls(
            step=given.integer("step", 0, MAX_STEP),
            interval=given.integer("interval", 1, _MAX_STEPS),
            overhead=overhead,
            low=given.number("low", -_MAX_OVERHEAD, overhead),
            high=given.number("high", overhead, _MAX_OVERHEAD),
        )


@dataclass(frozen=True)
class AutoSection:
    """The newest decision and what led to it, and the history.

    - ``conditions``: those under which it was measured.
    - ``overhead``, ``mtbf``, ``uncommitted``: as in ``checkfreq.algorithm_1``: a fraction, seconds or None, checkpoints.
    - ``interval``: the agreed one, in steps; ``step``: from which it counts; ``reason``: one of ``REASONS``; ``rank``: the one that wished
      for it, and whose ``profile`` and ``terms`` these are.
    - ``decisions``, ``windows``: the newest ``MOST_DECISIONS`` and ``MOST_WINDOWS``, the oldest first."""

    MOST_DECISIONS: ClassVar[int] = 200
    MOST_WINDOWS: ClassVar[int] = 500

    conditions: Conditions
    overhead: float
    mtbf: float | None
    uncommitted: int
    interval: int
    step: int
    reason: str
    rank: int
    profile: Profile
    terms: Bounds
    decisions: tuple[Decided, ...] = ()
    windows: tuple[Window, ...] = ()

    @property
    def last_step(self) -> int:
        """The step up to which the section tells."""
        return max([self.step, *(one.step for one in self.windows[-1:])])

    def to_json(self) -> dict[str, Any]:
        """The section, as objects for ``json``. Of a longer history it has the newest part."""
        own = {name: getattr(self, name) for name in _OWN}
        return {
            "key": asdict(self.conditions),
            **own,
            "profile": asdict(self.profile),
            "terms": asdict(self.terms),
            "decisions": [asdict(one) for one in self.decisions[-self.MOST_DECISIONS :]],
            "windows": [asdict(one) for one in self.windows[-self.MOST_WINDOWS :]],
        }

    @classmethod
    def from_json(cls, section: Mapping[str, Any], where: object = "plan.json") -> AutoSection:
        """The section from what ``to_json`` has made. ``where``: the file, for messages. CorruptError for anything else."""
        given = Fields(section, where, SECTION, REPLACED)
        given.keys("key", *_OWN, "profile", "terms", "decisions", "windows")
        key = given.child("key")
        key.keys(*Conditions.names())
        return cls(
            conditions=Conditions.of(key),
            overhead=given.number("overhead", _LEAST, 1.0),
            mtbf=_number_or_none(given, "mtbf", _LEAST, _MAX_TIME),
            uncommitted=given.integer("uncommitted", 1),
            interval=given.integer("interval", 1, _MAX_STEPS),
            step=given.integer("step", 0, MAX_STEP),
            reason=given.one_of("reason", REASONS),
            rank=given.integer("rank", 0, MAX_RANK),
            profile=_profile(given.child("profile")),
            terms=_terms(given.child("terms")),
            decisions=tuple(Decided._of(one) for one in _history(given, "decisions", cls.MOST_DECISIONS)),
            windows=tuple(Window._of(one) for one in _history(given, "windows", cls.MOST_WINDOWS)),
        )


_OWN = ("overhead", "mtbf", "uncommitted", "interval", "step", "reason", "rank")


def _profile(given: Fields) -> Profile:
    given.keys(*_names(Profile))
    return Profile(
        iteration=given.number("iteration", _LEAST_TIME, _MAX_TIME),
        update=given.number("update", 0.0, _MAX_TIME),
        copy=given.number("copy", 0.0, _MAX_TIME),
        persist=given.number("persist", 0.0, _MAX_TIME),
        nbytes=given.integer("nbytes"),
        device_copy=_number_or_none(given, "device_copy", 0.0, _MAX_TIME),
        device_used=given.integer("device_used"),
        device_size=given.integer("device_size"),
        cost=_number_or_none(given, "cost", 0.0, _MAX_TIME),
    )


def _terms(given: Fields) -> Bounds:
    given.keys(*_names(Bounds))
    return Bounds(
        by_commit=given.integer("by_commit", 1, _MAX_STEPS),
        by_budget=given.integer("by_budget", 1, _MAX_STEPS),
        by_failures=_steps_or_none(given, "by_failures"),
        mode=given.one_of("mode", ("device", "host")),
        cost=given.number("cost", 0.0, _MAX_TIME),
    )


def _history(given: Fields, key: str, most: int) -> list[Fields]:
    length = len(given.items(key))
    if length > most:
        raise given.error(f"{SECTION}.{key} to have at most {most} members", str(length))
    return given.children(key)


def _number_or_none(given: Fields, key: str, low: float, high: float) -> float | None:
    return None if given.plain()[key] is None else given.number(key, low, high)


def _steps_or_none(given: Fields, key: str) -> int | None:
    return None if given.plain()[key] is None else given.integer(key, 1, _MAX_STEPS)


def _names(cls: type) -> list[str]:
    return [field.name for field in fields(cls)]
