"""A retention rule: checkpoints thin out with age, to one an hour and then to one a day."""

from collections.abc import Mapping
from dataclasses import dataclass

from deepfreeze.store import Committed, History, Rule

HOUR, DAY = 3600, 24 * 3600  # seconds


@dataclass(frozen=True)
class Aging(Rule):
    """Wants every checkpoint of the last ``full`` hours, one of each hour of the last ``hourly`` days, and one of each day before. Hours
    and days are those of UTC.

    A rule has no clock: the same history must give the same answer. So the newest checkpoint's commit is the present, and nothing ages
    while no job runs."""

    full: float = 1
    hourly: float = 1

    def __post_init__(self) -> None:
        if not 0 <= self.full * HOUR <= self.hourly * DAY:
            raise ValueError(f"{self}: the {self.full:g} full hours are no part of the {self.hourly:g} days before")

    def wants(self, history: History) -> Mapping[int, str]:
        """Of each hour, and of each day, the oldest checkpoint stays: what comes later can't take its place, so it is still there when the
        others are old enough to go. The oldest one of a day is the oldest one of its hour too."""
        if not history.checkpoints:
            return {}
        now = history.checkpoints[-1].time
        found = dict.fromkeys(_oldest(history.checkpoints, DAY), "first of its day")
        recent = [one for one in history.checkpoints if now - one.time < self.hourly * DAY]
        found |= dict.fromkeys(_oldest(history.checkpoints, HOUR) & {one.step for one in recent}, "first of its hour")
        return found | {one.step: "recent" for one in recent if now - one.time < self.full * HOUR}


def _oldest(checkpoints: tuple[Committed, ...], seconds: int) -> set[int]:
    """The step of the oldest checkpoint in each interval of so many seconds since 1970."""
    found: dict[int, int] = {}
    for one in sorted(checkpoints, key=lambda one: (one.time, one.step)):
        found.setdefault(one.time // seconds, one.step)
    return set(found.values())
