"""By how much checkpoints lengthen a training: measured from one checkpoint to the next, four times over."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from deepfreeze.plan.step_times import Timed

INTERVALS = 4  # of a window
# Quantile 97.5 % of Student's distribution, by the number of samples: of one window, and of four.
_STUDENT = {INTERVALS: 3.182, 4 * INTERVALS: 2.131}
_ENOUGH = INTERVALS  # steps without a checkpoint from which their time is known
_NORMAL = 1.96  # quantile 97.5 % of the normal distribution
_UNKNOWN = 0.1  # relative error of a time of which one part alone is known
_FASTER = 0.9  # of the known time of a step: what is measured below it is no noise
_STEADY = 1.5  # times as long, or as short


@dataclass(frozen=True)
class Overhead:
    """What a window of four intervals has shown.

    - ``samples``: of each interval; ``mean``: their mean: seconds beyond those of plain steps, over the seconds of plain steps; ``low``,
      ``high``: its 95 % interval.
    - ``iteration``: seconds of a plain step in this window, so that a training that has become slower does not count as overhead.
    - ``doubt``: the part of the 95 % interval that is due to an uncertain ``iteration``.
    - ``error``: standard error of ``iteration``, relative to it.
    - ``cost``: seconds by which one checkpoint has lengthened the training.
    - ``distance``: steps from one checkpoint to the next, on average. Fewer than the interval if somebody else asks for checkpoints too.
    - ``steady``: plain steps took about as long in the first half of the window as in the second. If not, a change of the training's own
      pace may look like overhead.
    - ``plain``: there were enough plain steps to tell ``iteration``; else it is what was known before.
    - ``stale``: there were no plain steps, and steps with a checkpoint on its way took less than what is known of plain ones."""

    samples: tuple[float, ...]
    mean: float
    low: float
    high: float
    doubt: float
    iteration: float
    error: float
    cost: float
    distance: float
    steady: bool
    plain: bool
    stale: bool


@dataclass
class _Interval:
    """The steps from a captured one to the next, in sums. ``near``: up to half-way to the next checkpoint; ``busy``: the later ones during
    which a checkpoint was on its way; ``plain``: the rest. Times in seconds."""

    near_steps: int = 0
    near: float = 0.0
    busy_steps: int = 0
    busy: float = 0.0
    plain_steps: int = 0
    plain: float = 0.0
    blocking: float = 0.0

    @property
    def steps(self) -> int:
        return self.near_steps + self.busy_steps + self.plain_steps

    @property
    def late_steps(self) -> int:
        return self.busy_steps + self.plain_steps

    @property
    def late(self) -> float:
        return self.busy + self.plain

    def add(self, timed: Timed, near: bool) -> None:
        self.blocking += timed.blocking
        if timed.seconds is None:
            return
        if near:
            self.near_steps += timed.steps
            self.near += timed.seconds
        elif timed.plain:
            self.plain_steps += timed.steps
            self.plain += timed.seconds
        else:
            self.busy_steps += timed.steps
            self.busy += timed.seconds


class OverheadWindow:
    """Four intervals, from a captured step on. Its size does not grow with the number of steps."""

    def __init__(self, interval: int, iteration: float, error: float) -> None:
        """``interval``: the steps that are expected from one checkpoint to the next; ``iteration``: seconds of a plain step, as far as is
        known, for a window that has none; ``error``: its standard error, relative to it."""
        self._half = interval // 2
        self._known = (iteration, error)
        self._begin = 0  # the step at which the interval under way was captured
        self._intervals: list[_Interval] = []

    def add(self, timed: Timed) -> Overhead | None:
        """Takes in an execution. Returns what the window has shown if it has ended four intervals, and begins the next window."""
        found = None
        if timed.captured:
            if len(self._intervals) == INTERVALS:
                found = _overhead(self._intervals, *self._known)
                if (
                    _has_plain(self._intervals) and found.error <= _UNKNOWN
                ):  # else the time has changed within the window
                    self._known = (found.iteration, found.error)
                self._intervals = []
            self._begin = timed.step
            self._intervals.append(_Interval())
        if self._intervals:
            # The captured step itself is near; at an interval of one step nothing else is.
            self._intervals[-1].add(timed, near=timed.step - self._begin <= max(0, self._half - 1))
        return found


def _overhead(intervals: Sequence[_Interval], known: float, error: float) -> Overhead:
    """``known``, ``error``: seconds of a plain step, and their relative standard error, for a window without plain steps, such as one in
    which commits take as long as an interval. If the training itself has become slower meanwhile, that looks like overhead: the interval
    then grows until there are plain steps again. If it has become faster, what is known is ``stale``."""
    if _has_plain(intervals):
        iteration, error = _mean_time([(one.plain, one.plain_steps) for one in intervals])
        doubt = 0.0  # the samples have it in them
        stale = False
    else:
        iteration, doubt = known, _NORMAL * error
        seconds, spread = _mean_time([(one.near + one.late, one.near_steps + one.late_steps) for one in intervals])
        if sum(one.late_steps for one in intervals) >= _ENOUGH:
            seconds, spread = _mean_time([(one.late, one.late_steps) for one in intervals])
        stale = seconds * (1 + _STUDENT[INTERVALS] * spread) < known * min(1 - doubt, _FASTER)
    iteration = max(iteration, 1e-9)

    def cost(one: _Interval) -> float:
        return one.near + one.busy - (one.near_steps + one.busy_steps) * iteration + one.blocking

    costs = [cost(one) for one in intervals]
    samples = [found / (max(1, one.steps) * iteration) for found, one in zip(costs, intervals, strict=True)]
    mean, low, high = _mean(samples)
    return Overhead(
        samples=tuple(samples),
        mean=mean,
        low=low - doubt,
        high=high + doubt,
        doubt=doubt,
        iteration=iteration,
        error=error,
        cost=sum(costs) / len(costs),
        distance=sum(one.steps for one in intervals) / len(intervals),
        steady=_is_steady(intervals),
        plain=_has_plain(intervals),
        stale=stale,
    )


def _has_plain(intervals: Sequence[_Interval]) -> bool:
    return sum(one.plain_steps for one in intervals) >= _ENOUGH


def _mean_time(parts: Sequence[tuple[float, int]]) -> tuple[float, float]:
    """Seconds of a step, and their relative standard error. ``parts``: seconds and steps of each interval."""
    steps = sum(one for _, one in parts)
    mean = sum(seconds for seconds, _ in parts) / steps
    means = [seconds / one for seconds, one in parts if one]
    if len(means) < 2 or mean <= 0:
        return mean, _UNKNOWN
    spread = math.sqrt(sum((one - mean) ** 2 for one in means) / (len(means) - 1))
    return mean, spread / math.sqrt(len(means)) / mean


def together(windows: Sequence[Overhead]) -> tuple[float, float, float]:
    """The mean overhead of all intervals of ``windows``, one or four of them, and its 95 % interval. Four windows of a noisy training tell
    what none of them tells alone."""
    mean, low, high = _mean([sample for window in windows for sample in window.samples])
    doubt = max(window.doubt for window in windows)
    return mean, low - doubt, high + doubt


def _mean(samples: Sequence[float]) -> tuple[float, float, float]:
    """The mean, and its 95 % interval."""
    mean = sum(samples) / len(samples)
    spread = math.sqrt(sum((one - mean) ** 2 for one in samples) / (len(samples) - 1))
    half = _STUDENT[len(samples)] * spread / math.sqrt(len(samples))
    return mean, mean - half, mean + half


def _is_steady(intervals: Sequence[_Interval]) -> bool:
    means = [
        sum(one.plain for one in half) / steps
        for half in (intervals[: INTERVALS // 2], intervals[INTERVALS // 2 :])
        if (steps := sum(one.plain_steps for one in half))
    ]
    return max(means, default=0.0) <= _STEADY * min(means, default=0.0)
