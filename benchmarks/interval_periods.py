"""The overhead of the checkpoints of one training, interval by interval, for ``benchmarks.interval``. Imports no TensorFlow."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

DRAWS = 4000  # of the bootstrap


@dataclass(frozen=True)
class Period:
    """A captured step and the steps after it, up to the next captured one: ``step`` is that next one, ``k`` how many steps they are,
    ``seconds`` the mean of one of them."""

    step: int
    k: int
    seconds: float


@dataclass(frozen=True)
class Course:
    """A part of a training: ``seconds`` of each step after ``begin``, callbacks included, and which steps were ``captured``. ``plain``: the
    seconds of steps without checkpoints, right before and right after this part."""

    begin: int
    seconds: Sequence[float]
    captured: Sequence[int] = ()
    plain: Sequence[float] = ()

    def periods(self) -> list[Period]:
        """All whole periods."""
        steps = [step for step in self.captured if self.begin < step <= self.begin + len(self.seconds)]
        return [self._period(first, after) for first, after in itertools.pairwise(steps)]

    def _period(self, first: int, after: int) -> Period:
        # The step before ``after`` has the wait for memory, or for the last commit, in it: that belongs to the checkpoint of ``first``.
        seconds = self.seconds[first - self.begin - 1 : after - self.begin - 1]
        return Period(after, after - first, sum(seconds) / len(seconds))

    def costs(self) -> list[float]:
        """By what part of a plain step the steps of each period are longer on average."""
        plain = statistics.fmean(self.plain)
        return [period.seconds / plain - 1 for period in self.periods()]

    def extra(self, until: int) -> float:
        """Seconds that the steps up to ``until`` took more than so many plain ones."""
        seconds = self.seconds[: max(0, until - self.begin)]
        return sum(seconds) - statistics.fmean(self.plain) * len(seconds)

    def data(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def overhead(courses: Sequence[Course]) -> float:
    """Of all steps of the courses' periods together: by what part of a plain step they are longer on average. ``SystemExit`` if there are
    none: the training was too short for its interval."""
    taken = plain = 0.0
    for course in courses:
        for period in course.periods():
            taken += period.seconds * period.k
            plain += statistics.fmean(course.plain) * period.k
    if not plain:
        steps = sum(len(course.seconds) for course in courses)
        raise SystemExit(f"{steps} steps from step {courses[0].begin} on have no two checkpoints to compare")
    return taken / plain - 1


def overhead_within(courses: Sequence[Course]) -> tuple[float, float]:
    """The 95 % interval of ``overhead``: the bootstrap's percentiles, over the periods and the plain steps of each course. The same at
    every call."""
    import numpy as np  # only who shows results needs it

    random = np.random.default_rng(0)
    taken, plain = np.zeros(DRAWS), np.zeros(DRAWS)
    for course in courses:
        periods = course.periods()
        if not periods:
            continue
        k = np.array([period.k for period in periods])
        seconds = k * np.array([period.seconds for period in periods])
        drawn = random.integers(len(periods), size=(DRAWS, len(periods)))
        step = random.choice(np.array(course.plain), size=(DRAWS, len(course.plain))).mean(axis=1)
        taken += seconds[drawn].sum(axis=1)
        plain += k[drawn].sum(axis=1) * step
    low, high = np.percentile(taken / plain - 1, [2.5, 97.5])
    return float(low), float(high)
