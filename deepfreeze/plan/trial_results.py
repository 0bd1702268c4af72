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
_CHANCE = 1 / 16  # with which the time of a checkpoint may be taken too low


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
        """The seconds by which a checkpoint lengthens the training (To): a bound above the median of all checkpoints that were alone on
        their way, but at least their CPU time over the rank's ``cores``. None if there were too few such checkpoints.

        The bound is above the median because the two errors are not alike. An interval that is too long loses some more steps at a kill,
        and ``Auto`` shortens it while training runs. An interval that is too short makes the training longer than the user allows. On a
        noisy machine the median itself is too small in every other search."""
        if len(self._alone) < _ENOUGH:
            return None
        plain = self.iteration or profile.iteration
        longer = above_the_median([one.seconds - one.steps * plain for one in self._alone])
        return max(longer, statistics.median(one.cpu for one in self._alone) / cores)


def above_the_median(samples: Sequence[float]) -> float:
    """The least sample that is above the true median in 15 of 16 cases, by the binomial distribution of order statistics; the largest
    sample if none is. ``samples``: at least one."""
    drawn, n = sorted(samples), len(samples)
    for k in range(1, n):
        # The k-th sample lies below the true median if k samples or more do. Each of them does with a chance of one half.
        if sum(math.comb(n, below) for below in range(k, n + 1)) <= _CHANCE * 2**n:
            return drawn[k - 1]
    return drawn[-1]
