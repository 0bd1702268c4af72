"""The profile of a training: some steps without checkpoints, then two checkpoints that show their cost (CheckFreq, section 4.2)."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from deepfreeze.plan.checkfreq import Profile
from deepfreeze.plan.observation import Progressed
from deepfreeze.plan.step_times import Timed

_LEAST, _MOST = 8, 50  # plain steps of a profile; between them, a hundredth of an epoch
_EXECUTIONS = 4  # at least, where an execution has many steps
_SECONDS = 60.0  # of plain steps: a job with long steps may be killed before it has a checkpoint
_PROBES = 2
_MOST_DOUBLINGS = 12  # of the pause after failed probes
_AFTER = 4  # executions after a probe's capture that belong to it at least, because its writes go on beside them
_NORMAL = 1.96  # quantile 97.5 % of the normal distribution


class Profiling:
    """Measures one rank's ``Profile``. ``probe``: whether a checkpoint is wanted now."""

    def __init__(self, cores: float) -> None:
        """``cores``: how many the rank's process has."""
        self.probe = False
        self._cores = cores
        self._plain: list[float] = []  # seconds of a step, of each plain execution
        self._plain_steps = 0
        self._plain_seconds = 0.0
        self._not_before = 0  # plain steps after which a probe is wanted again
        self._failures = 0  # probes that were not committed
        self._under_way: _Probe | None = None
        self._probes: list[_Probe] = []

    def add(self, timed: Timed, epoch_steps: int | None) -> None:
        """Takes in an execution. ``epoch_steps``: the steps of an epoch, None if nobody knows them."""
        if self._under_way is not None:
            self._under_way.add(timed)
            if self._under_way.is_over:
                self._end_probe(self._under_way)
        elif timed.plain and timed.seconds is not None and not self.probe:
            self._plain.append(timed.seconds / timed.steps)
            self._plain_steps += timed.steps
            self._plain_seconds += timed.seconds
            most = max(_LEAST, min((epoch_steps or 0) // 100, _MOST))
            long = self._plain_steps >= most or (self._plain_steps >= _LEAST and self._plain_seconds >= _SECONDS)
            self.probe = long and len(self._plain) >= _EXECUTIONS and self._plain_steps >= self._not_before

    def _end_probe(self, probe: _Probe) -> None:
        self._under_way = None
        if probe.persist is not None:
            self._probes.append(probe)
            self.probe = len(self._probes) < _PROBES
        else:  # it has failed, and the next one may fail too
            self._failures += 1
            self._not_before = self._plain_steps + (_LEAST << min(self._failures, _MOST_DOUBLINGS))

    def training_begins(self) -> None:
        """Another ``fit`` begins. A checkpoint that was under way in the last one will not be reported."""
        self._under_way, self.probe = None, False

    def captured(self, step: int) -> None:
        """A checkpoint of ``step`` was captured, whoever has asked for it. To be called at once, before ``add`` of its execution."""
        self.probe = False
        if self._under_way is None:
            self._under_way = _Probe(step)

    def progressed(self, report: Progressed) -> None:
        """Takes in how far a checkpoint has come."""
        if self._under_way is not None:
            self._under_way.progressed(report)

    @property
    def left(self) -> str:
        """What the profile lacks, for people."""
        if not self._plain:
            return "no step without a checkpoint was timed"
        if not (self.probe or self._under_way or self._probes or self._failures):
            return f"{self._plain_steps} steps without a checkpoint were timed"
        return f"{len(self._probes)} of {_PROBES} checkpoints that it times were committed"

    @property
    def error(self) -> float:
        """The relative standard error of the time of a step."""
        mean = statistics.mean(self._plain)
        return statistics.stdev(self._plain) / math.sqrt(len(self._plain)) / max(mean, 1e-9)

    def profile(self, nbytes: int) -> Profile | None:
        """The profile, when it is complete. ``nbytes``: of this rank's part of a checkpoint."""
        if len(self._probes) < _PROBES or len(self._plain) < _EXECUTIONS:
            return None
        iteration = max(statistics.median(self._plain), 1e-9)
        copy = self._probes[-1].copy
        # Of two the smaller: an interval that is too long takes longer to become right than one that is too short.
        persist = min(probe.persist or 0.0 for probe in self._probes)
        newest = self._probes[-1]  # the first checkpoint of an engine has the engine's start in its CPU time
        cpu = newest.copy + newest.cpu
        return Profile(
            iteration=iteration,
            update=0.0,
            copy=copy,
            persist=persist,
            nbytes=nbytes,
            cost=_cost(self._plain, self._probes, cpu / self._cores),
        )


class _Probe:
    """One checkpoint, and the executions from its capture until its commit."""

    def __init__(self, step: int) -> None:
        self.persist: float | None = None
        self.copy, self.cpu = 0.0, 0.0
        self.executions = self.steps = 0
        self.seconds = self.blocking = 0.0
        self._step, self._failed = step, False

    def add(self, timed: Timed) -> None:
        if timed.step < self._step:
            return
        self.executions += 1
        self.blocking += timed.blocking
        if timed.seconds is not None:
            self.steps += timed.steps
            self.seconds += timed.seconds

    def progressed(self, report: Progressed) -> None:
        if report.step == self._step:
            self._failed = report.failed
            if report.committed is not None:
                self.persist = report.committed
            self.copy, self.cpu = report.copy or 0.0, report.cpu or 0.0

    @property
    def is_over(self) -> bool:
        return self.executions > _AFTER and (self._failed or self.persist is not None)


def _cost(plain: Sequence[float], probes: Sequence[_Probe], cpu: float) -> float:
    """Seconds by which a checkpoint lengthens the training: what the probes' steps took beyond plain ones. ``cpu``: the CPU time of a
    checkpoint over the process's cores, which is the answer if the difference is within noise."""
    mean, spread = statistics.mean(plain), statistics.stdev(plain)
    costs = {probe.seconds - probe.steps * mean + probe.blocking: probe.executions for probe in probes}
    cost = min(costs)
    # A probe has so many executions, and the mean of plain ones that is taken off for each of them is uncertain too.
    error = spread * math.sqrt(costs[cost] + costs[cost] ** 2 / len(plain))
    return cost if cost - _NORMAL * error > 0 else cpu
