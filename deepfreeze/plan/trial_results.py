"""The measurements of one rank during a search for its engine's setting, and what follows from them for the interval."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from deepfreeze.plan.checkfreq import Profile
from deepfreeze.plan.observation import Observation
from deepfreeze.plan.pccheck import Setting, Tried
from deepfreeze.plan.trial_watch import Alone, TrialWatch

_ENOUGH = 4  # checkpoints, or steps, whose median tells
_CHANCE = 1 / 16


class TrialResults:
    """Of all trials of a search, and of the steps between them."""

    def __init__(self) -> None:
        self._tried: dict[Setting, Tried] = {}
        self._alone: list[Alone] = []
        self._plain: list[float] = []  # seconds of each step beside which no checkpoint was on its way
        self._idle = False  # no checkpoint was on its way when the last execution ended

    def between(self, observation: Observation) -> None:
        """Takes in an execution that belongs to no trial."""
        idle = observation.captured is None and observation.in_flight == 0
        if self._idle and idle and observation.steps and not observation.paused:
            self._plain.append(observation.seconds / observation.steps)
        self._idle = idle

    def add(self, watch: TrialWatch) -> Tried | None:
        """Takes in a trial that is over. Returns its result, None if it shows nothing."""
        self._idle = False
        if watch.alone is not None:
            self._alone.append(watch.alone)
        tried = watch.tried
        if tried is not None:
            # Of two the slower: an interval that is too short has training wait, or checkpoints skipped.
            before = self._tried.get(tried.setting, tried)
            self._tried[tried.setting] = max(before, tried, key=lambda one: one.period)
        return tried

    def commit(self, setting: Setting) -> float | None:
        """Tw with this setting, in seconds; None if it was not tried here."""
        found = self._tried.get(setting)
        return None if found is None else found.period * setting.uncommitted

    @property
    def iteration(self) -> float | None:
        """Seconds of a step without checkpoints during the search; None if there were too few of them."""
        return statistics.median(self._plain) if len(self._plain) >= _ENOUGH else None

    def cost(self, profile: Profile, cores: float) -> float | None:
        """By how many seconds a checkpoint lengthens the training (To), with a bound above the median of those that were alone on their
        way; but their CPU time over the rank's ``cores`` at least. None if there are too few.

        The two errors are not alike. An interval that is too long loses some steps more at a kill, and is shortened while training runs.
        One that is too short makes the training longer than the user allows. On a noisy machine the median itself is too small in every
        other search, and a few slow plain steps make it nothing."""
        if len(self._alone) < _ENOUGH:
            return None
        plain = self.iteration or profile.iteration
        longer = above_the_median([one.seconds - one.steps * plain for one in self._alone])
        return max(longer, statistics.median(one.cpu for one in self._alone) / cores)


def above_the_median(samples: Sequence[float]) -> float:
    """The least sample that is above the true median in 15 of 16 cases; the largest one if none is. ``samples``: at least one."""
    drawn, chance = sorted(samples), 0.0
    for number in range(len(drawn), 0, -1):
        # As for heads of a coin: so many samples, or more, are below the true median.
        chance += math.comb(len(drawn), number) / 2 ** len(drawn)
        if chance > _CHANCE:
            return drawn[min(number, len(drawn) - 1)]
    return drawn[0]
