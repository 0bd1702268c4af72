"""How long steps take, of what a policy is told: each execution with the time for which DeepFreeze held up training after it."""

from __future__ import annotations

from dataclasses import dataclass

from deepfreeze.plan.observation import Observation

_UNTYPICAL = (
    2  # executions at the beginning of a training: the train function is traced in them, and the engine is opened
)


@dataclass(frozen=True)
class Timed:
    """One execution that has made steps. Times are in seconds.

    - ``step``: at which it ended; ``steps``: how many it made, 1 or more.
    - ``seconds``: of the execution; None if they say nothing of its steps, because a validation came before, for example.
    - ``blocking``: for which DeepFreeze held up training after it.
    - ``captured``: a checkpoint of it was captured.
    - ``plain``: no checkpoint was captured in it, and none was on its way to its commit.
    """

    step: int
    steps: int
    seconds: float | None
    blocking: float
    captured: bool
    plain: bool


class StepTimes:
    """Makes a ``Timed`` of each observation. Executions without a step, such as batches between two updates, count for the next one with
    a step."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """A training begins: the function is traced, and nothing is known of what was before."""
        self._left_out = _UNTYPICAL
        self._in_flight = 0
        self._begin()

    def _begin(self) -> None:
        """An execution begins, of which the sums below are, together with the executions without a step before it."""
        self._step = self._steps = 0  # 0 steps: it has not ended
        self._seconds: float | None = 0.0
        self._blocking = 0.0
        self._captured, self._plain = False, True

    def add(self, now: Observation) -> Timed | None:
        """The execution before the observed one, if it had a step and is typical: the time for which training was held up after it is known
        only now."""
        self._blocking += now.blocking
        done = self._end() if self._steps else None
        self._step, self._steps = now.step, now.steps
        self._seconds = None if now.paused or self._seconds is None else self._seconds + now.seconds
        captured = now.captured is not None
        self._captured |= captured
        self._plain &= not captured and self._in_flight == 0
        self._in_flight = now.in_flight
        return done

    def _end(self) -> Timed | None:
        done = Timed(self._step, self._steps, self._seconds, self._blocking, self._captured, self._plain)
        self._begin()
        if self._left_out:
            self._left_out -= 1
            return None
        return done
