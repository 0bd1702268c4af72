"""When to checkpoint. A policy is any object with ``next_step``; one file each."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import Protocol

from deepfreeze.errors import OptionError

# Beyond any step: nothing is to be captured.
NEVER = 2**62


class Policy(Protocol):
    """Decides from the step alone, so that all ranks decide alike without talking."""

    def next_step(self, step: int) -> int:
        """The first step after ``step`` to checkpoint."""


@dataclass(frozen=True)
class EverySteps:
    """Every ``k`` steps: k, 2k, 3k, ..."""

    k: int

    def next_step(self, step: int) -> int:
        """The next multiple of k above ``step``."""
        return (step // self.k + 1) * self.k

    def __str__(self) -> str:
        return str(self.k)  # as it was given


def as_policy(every: object) -> Policy:
    """``every=15`` means ``EverySteps(15)``; a policy object is itself. Raises ``OptionError`` for anything else."""
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
