"""Policies: they decide at which steps a checkpoint is taken. A policy is any object with a method ``next_step``."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import Protocol

from deepfreeze.errors import OptionError

# A step that no training reaches: as the step to capture next it means that nothing will be captured.
NEVER = 2**62


class Policy(Protocol):
    """Decides at which steps a checkpoint is taken. The result depends on the argument alone, so that all ranks decide alike without
    talking to each other. The training thread calls it, several times for each execution of the train function, also for steps that
    are far ahead or were asked for before: the call takes microseconds and changes nothing."""

    def next_step(self, step: int) -> int:
        """The first step after ``step`` (0 or more) at which a checkpoint is due: greater than ``step``."""


@dataclass(frozen=True)
class EverySteps:
    """Every ``k`` steps: k, 2k, 3k, ..."""

    k: int

    def next_step(self, step: int) -> int:
        """The next multiple of k above ``step``."""
        return (step // self.k + 1) * self.k

    def __str__(self) -> str:
        return str(self.k)  # as in the user's every=15


def as_policy(every: object) -> Policy:
    """The policy that the option ``every`` stands for: ``EverySteps(15)`` for 15; a policy object is returned as it is. ``OptionError``
    for any other value."""
    if isinstance(every, Integral) and not isinstance(every, bool) and 0 < int(every) < NEVER:
        return EverySteps(int(every))
    if callable(getattr(every, "next_step", None)):
        return every  # type: ignore[return-value]
    raise OptionError(
        where="every=",
        expected="a whole number of steps, 1 or more, or a policy",
        found=repr(every)[:200],
        todo="pass e.g. every=15",
    )
