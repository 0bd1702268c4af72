"""The overhead of the checkpoints of one training, interval by interval, for ``benchmarks.interval``. Imports no TensorFlow."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Period:
    """A captured step and the steps after it, up to the next captured one: ``step`` is that next one, ``k`` how many steps they are,
    ``seconds`` the mean of one of them."""

    step: int
    k: int
    seconds: float


@dataclass(frozen=True)
class Course:
    """A part of a training: ``seconds`` of each step after ``begin``, callbacks included, and which steps were ``captured``."""

    begin: int
    seconds: Sequence[float]
    captured: Sequence[int] = ()

    def periods(self) -> list[Period]:
        """All whole periods."""
        steps = [step for step in self.captured if self.begin < step <= self.begin + len(self.seconds)]
        return [self._period(first, after) for first, after in itertools.pairwise(steps)]

    def settled(self) -> list[Period]:
        """The periods of the second half of the steps; at least the last one. ``SystemExit`` if there is none: the training was too
        short for its interval."""
        periods, half = self.periods(), self.begin + len(self.seconds) / 2
        if not periods:
            raise SystemExit(f"{len(self.seconds)} steps from step {self.begin} on have no two checkpoints to compare")
        return [period for period in periods if period.step - period.k >= half] or periods[-1:]

    def _period(self, first: int, after: int) -> Period:
        # The step before ``after`` has the wait for memory, or for the last commit, in it: that belongs to the checkpoint of ``first``.
        seconds = self.seconds[first - self.begin - 1 : after - self.begin - 1]
        return Period(after, after - first, sum(seconds) / len(seconds))

    def extra(self, until: int, plain: float) -> float:
        """Seconds that the steps up to ``until`` took more than so many plain ones."""
        seconds = self.seconds[: max(0, until - self.begin)]
        return sum(seconds) - plain * len(seconds)

    def data(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def overhead(periods: Sequence[Period], plain: float) -> float:
    """Of all steps of the periods together: by what part of a plain step they are longer on average."""
    steps = sum(period.k for period in periods)
    return sum(period.seconds * period.k for period in periods) / steps / plain - 1
