"""The section ``budget`` of ``plan.json``: what the policy ``Budget``, or ``deepfreeze tune``, has found out about an engine and its store,
and the interval that followed (docs/format.md, "Plan")."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

from deepfreeze.format.plan_file import REPLACED
from deepfreeze.format.strict_json import Fields
from deepfreeze.plan.auto_section import AutoSection, Conditions
from deepfreeze.plan.limits import Limits
from deepfreeze.plan.pccheck import ENDS, Setting, Tried

SECTION = "budget"

_SETTING = ("writers", "transfers", "uncommitted")
_MOST = {"writers": 256, "transfers": 64, "uncommitted": 2048}
_MAX_TIME = 1e9  # seconds
_LEAST_TIME = 1e-9
_LIMITS = ("behind", "bound", "store", "options")
_TIMES = ("period", "commit", "stall")


@dataclass(frozen=True)
class BudgetSection:
    """- ``conditions``, ``limits``: those under which all of it was measured.
    - ``ended``: why the search was over, one of ``pccheck.ENDS``.
    - ``iteration``: seconds of a step without checkpoints, on rank 0; ``nbytes``: bytes of rank 0's part of a checkpoint.
    - ``tried``: the results of the search, in order; ``chosen``: the setting that has won, None if no trial has shown anything.
    - ``auto``: the interval, and what led to it; None if none was chosen yet."""

    MOST_TRIED: ClassVar[int] = 64

    conditions: Conditions
    limits: Limits
    ended: str
    iteration: float
    nbytes: int
    chosen: Setting | None
    tried: tuple[Tried, ...]
    auto: AutoSection | None

    def with_auto(self, auto: AutoSection | None) -> BudgetSection:
        """The same, with a newer ``auto``; None: the present one stays."""
        return self if auto is None else replace(self, auto=auto)

    def begun(self) -> BudgetSection:
        """The same for a run in which nothing was trained yet: the steps of the scratch run mean nothing there."""
        auto = self.auto
        return self if auto is None else replace(self, auto=replace(auto, step=0, decisions=(), windows=()))

    @property
    def rate(self) -> float | None:
        """Ts: the bytes of rank 0's part that one checkpoint alone brought to the store in a second; None if it was not tried."""
        alone = [one.period for one in self.tried if one.setting.uncommitted == 1]
        return self.nbytes / min(alone) if alone else None

    def to_json(self) -> dict[str, Any]:
        """The section, as objects for ``json``."""
        limits = {name: getattr(self.limits, name) for name in _LIMITS}
        return {
            "key": {**asdict(self.conditions), **limits, **asdict(self.limits.most)},
            "ended": self.ended,
            "iteration": self.iteration,
            "nbytes": self.nbytes,
            "chosen": None if self.chosen is None else asdict(self.chosen),
            "tried": [_of_tried(one) for one in self.tried[: self.MOST_TRIED]],
            "auto": None if self.auto is None else self.auto.to_json(),
        }

    @classmethod
    def from_json(cls, section: Mapping[str, Any], where: object = "plan.json") -> BudgetSection:
        """The section from what ``to_json`` has made. ``where``: the file, for messages. CorruptError for anything else."""
        given = Fields(section, where, SECTION, REPLACED)
        given.keys("key", "ended", "iteration", "nbytes", "chosen", "tried", "auto")
        key = given.child("key")
        key.keys(*Conditions.names(), *_LIMITS, *_SETTING)
        tried = given.children("tried")
        if len(tried) > cls.MOST_TRIED:
            raise given.error(f"{SECTION}.tried to have at most {cls.MOST_TRIED} members", str(len(tried)))
        plain, most = given.plain(), _setting(key)
        return cls(
            conditions=Conditions.of(key),
            limits=Limits(
                most=most,
                behind=key.integer("behind", 0, _MOST["uncommitted"]),
                bound=key.text("bound"),
                store=key.text("store"),
                options=key.text("options"),
            ),
            ended=given.one_of("ended", ENDS),
            iteration=given.number("iteration", _LEAST_TIME, _MAX_TIME),
            nbytes=given.integer("nbytes", 1),
            chosen=None if plain["chosen"] is None else _exactly(given.child("chosen"), most),
            tried=tuple(_tried(one, most) for one in tried),
            auto=None if plain["auto"] is None else AutoSection.from_json(given.child("auto").plain(), where),
        )


def _of_tried(tried: Tried) -> dict[str, Any]:
    own = {name: getattr(tried, name) for name in ("checkpoints", "under_way", *_TIMES)}
    return {**asdict(tried.setting), **own}


def _tried(given: Fields, most: Setting) -> Tried:
    given.keys(*_SETTING, "checkpoints", "under_way", *_TIMES)
    return Tried(
        setting=_setting(given, most),
        checkpoints=given.integer("checkpoints", 1, _MOST["uncommitted"]),
        period=given.number("period", _LEAST_TIME, _MAX_TIME),
        commit=given.number("commit", 0.0, _MAX_TIME),
        under_way=given.integer("under_way", 0, _MOST["uncommitted"]),
        stall=given.number("stall", 0.0, _MAX_TIME),
    )


def _exactly(given: Fields, most: Setting) -> Setting:
    given.keys(*_SETTING)
    return _setting(given, most)


def _setting(given: Fields, most: Setting | None = None) -> Setting:
    """A setting of at most ``most``: an engine refuses a greater one."""
    bounds = _MOST if most is None else asdict(most)
    return Setting(*(given.integer(name, 1, bounds[name]) for name in _SETTING))
