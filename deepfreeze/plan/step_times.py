"""How long steps take, of what a policy is told: each execution with the time for which DeepFreeze held up training after it."""

from __future__ import annotations

from dataclasses import dataclass, replace

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
        self._waiting: Timed | None = None  # until it is known for how long DeepFreeze held up training after it
        self._unfinished = Timed(
            0, 0, 0.0, 0.0, False, True
        )  # executions without a step, since the last one with a step

    def add(self, now: Observation) -> Timed | None:
        """The execution before the one that is observed, if it had a step and is typical."""
        if self._waiting is not None:
            done: Timed | None = replace(self._waiting, blocking=self._waiting.blocking + now.blocking)
        else:
            done, before = None, self._unfinished
            self._unfinished = replace(before, blocking=before.blocking + now.blocking)
        self._waiting = None
        before = self._unfinished
        whole = Timed(
            step=now.step,
            steps=now.steps,
            seconds=None if now.paused or before.seconds is None else before.seconds + now.seconds,
            blocking=before.blocking,
            captured=before.captured or now.captured is not None,
            plain=before.plain and now.captured is None and self._in_flight == 0,
        )
        self._in_flight = now.in_flight
        if now.steps:
            self._waiting, self._unfinished = whole, Timed(0, 0, 0.0, 0.0, False, True)
        else:
            self._unfinished = whole
        if done is not None and self._left_out:
            self._left_out -= 1
            return None
        return done
