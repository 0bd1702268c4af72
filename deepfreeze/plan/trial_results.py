"""The measurements of one rank during a search for its engine's setting, and what follows from them for the interval."""

from __future__ import annotations

import statistics

from deepfreeze.plan.checkfreq import Profile
from deepfreeze.plan.observation import Observation
from deepfreeze.plan.pccheck import Setting, Tried
from deepfreeze.plan.trial_watch import Alone, TrialWatch

_ENOUGH = 4  # checkpoints, or steps, whose median tells


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
        """By how many seconds a checkpoint lengthens the training (To): the median of those that were alone on their way, of which there
        are more than in the ``profile``, but their CPU time over the rank's ``cores`` at least. None if there are too few."""
        if len(self._alone) < _ENOUGH:
            return None
        # Their mean, and not the median: on a noisy machine the sum of several steps is greater than so many medians.
        plain = statistics.mean(self._plain) if len(self._plain) >= _ENOUGH else profile.iteration
        longer = statistics.median(one.seconds - one.steps * plain for one in self._alone)
        return max(longer, statistics.median(one.cpu for one in self._alone) / cores)
