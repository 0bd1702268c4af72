"""Watches one trial of a setting in a training, and says what it has shown."""

from __future__ import annotations

from dataclasses import dataclass

from deepfreeze.plan.observation import Observation
from deepfreeze.plan.pccheck import Taken, Tried, result
from deepfreeze.plan.trial_order import TrialOrder

_LATER = 2  # executions after the last due step in which its capture is heard of


@dataclass(frozen=True)
class Alone:
    """A checkpoint that was alone on its way: the ``seconds`` and the ``steps`` from its order to its commit, and the ``cpu`` seconds of
    its copy and of the engine."""

    seconds: float
    steps: int
    cpu: float


class TrialWatch:
    """One rank's view of a trial.

    ``failed``: a checkpoint of it was not committed. ``disturbed``: something else went on meanwhile, so that the trial shows little: a
    pause of the training, such as a validation, or a checkpoint that was on its way when the first one of the trial was taken."""

    def __init__(self, order: TrialOrder, since: int, iteration: float) -> None:
        """``since``: the step from which the order counts; ``iteration``: seconds of a step without checkpoints."""
        self.failed = self.disturbed = False
        self._order, self._since, self._iteration = order, since, iteration
        self._last = order.last_step(since)
        self._step = since
        self._in_flight = 0
        self._clock = 0.0  # seconds of training, and of what holds it up
        # step -> when its checkpoint was handed over, and how many were on their way then
        self._handed: dict[int, tuple[float, int]] = {}
        self._commits: dict[int, float] = {}  # step -> seconds from the hand-over to the commit
        self._seconds = 0.0  # of the executions that have no pause in them, and their steps
        self._steps = 0
        self._cpu: dict[int, float] = {}  # step -> CPU seconds of its copy and of the engine's threads

    def add(self, observation: Observation) -> None:
        """Takes in an execution."""
        if observation.step <= self._since:
            return
        # The wait comes before the execution: it was for memory that this one captures into.
        seconds = observation.blocking + observation.seconds
        self._clock += seconds
        self._step, self._in_flight = observation.step, observation.in_flight
        if observation.paused:
            self.disturbed |= self._handed.keys() != self._commits.keys()
        else:
            self._seconds += seconds
            self._steps += observation.steps
        step = observation.captured
        if step is not None and self._since < step <= self._last:
            self.disturbed |= not self._handed and observation.in_flight > 1
            self._handed[step] = self._clock, observation.in_flight
        for report in observation.reports:
            if report.superseded:
                # Its time tells nothing. The work that the store has done for it makes the others later, and so counts.
                self._handed.pop(report.step, None)
            elif report.step in self._handed:
                self.failed |= report.failed
                if report.committed is not None:
                    self._commits[report.step] = report.committed
                    self._cpu[report.step] = (report.copy or 0.0) + (report.cpu or 0.0)

    @property
    def is_over(self) -> bool:
        """True if every checkpoint of the trial that was taken is committed, or given up, or was never handed over; or one has failed."""
        settled = self._in_flight == 0 or self._handed.keys() == self._commits.keys()
        return self.failed or (self._step >= self._last + _LATER * self._order.apart and settled)

    @property
    def alone(self) -> Alone | None:
        """The measurements of a checkpoint that was alone on its way; None if there was none."""
        if self.failed or self._order.setting.uncommitted > 1 or len(self._commits) != 1:
            return None
        return Alone(self._seconds, self._steps, *self._cpu.values())

    @property
    def tried(self) -> Tried | None:
        """The trial's result; None if it has none, because no checkpoint of it was taken, or one has failed."""
        if self.failed or not self._commits:
            return None
        taken = [Taken(*self._handed[step], self._commits[step]) for step in sorted(self._commits)]
        stall = self._seconds - self._steps * self._iteration
        return result(self._order.setting, taken, max(0.0, stall))
