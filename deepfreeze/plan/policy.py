"""Policies: they decide at which steps a checkpoint is taken. A policy is any object with a method ``next_step``."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import Protocol, runtime_checkable

from deepfreeze.errors import OptionError
from deepfreeze.plan.observation import Observation

# A step that no training reaches: as the step to capture next it means that nothing will be captured.
NEVER = 2**62


class Policy(Protocol):
    """Decides at which steps a checkpoint is taken. The result depends on the argument alone, so that all ranks decide alike without
    talking to each other. The training thread calls it, several times for each execution of the train function, also for steps that
    are far ahead or were asked for before: the call takes microseconds and changes nothing. A policy that raises, or returns no step
    after the given one, ends training with an ``OptionError`` that names it.

    When a training begins, ``str(policy)`` is compared between the ranks, unless it has an address as Python's own ``repr`` has. So a
    policy's text names all that must be the same on all ranks, and nothing that a rank has seen alone."""

    def next_step(self, step: int) -> int:
        """The first step after ``step`` (0 or more) at which a checkpoint is due: greater than ``step``. ``NEVER`` if none is."""


@runtime_checkable
class LearningPolicy(Policy, Protocol):
    """A policy that sees how the training goes, and may change its mind.

    What a rank sees differs from what another rank sees, and yet all must capture the same steps. So a rank only *wishes* for an interval.
    The ranks agree on the greatest of their present wishes, and every rank's policy is told of it after the same execution. Between two
    such calls ``next_step`` depends on its argument alone. The training thread calls both methods, between two executions.

    A policy keeps what it has learned through all trainings of its ``Checkpoint``. A job that is started again has a new policy, which
    knows what the old one had learned if the policy is an object of ``extra=`` too: it needs ``state_dict`` and ``load_state_dict``."""

    def observe(self, observation: Observation) -> int:
        """This rank's wish: a whole number from 0 to ``NEVER``, usually the least number of steps between two checkpoints that this rank
        can bear. It holds until the next call, which therefore returns it again as long as it stands; 0 is no wish. Called after each
        execution, on every rank by itself, so it may not talk to other ranks; it takes microseconds."""

    def agree(self, wish: int, step: int) -> None:
        """The ranks have agreed on ``wish``, 1 or more: greater than the last agreed one, or smaller, if the greatest wish has fallen.
        While no rank has a wish, the last agreed one stays. Called on every rank after the same execution, and only if the agreed value is
        another one than before in this training.

        It counts from ``step`` on, which is the step that is to be captured next if one is. In this training ``next_step`` is not asked
        about earlier steps any more."""


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
    for any other value, and for an object that observes and can't be told what the ranks agree on."""
    if isinstance(every, Integral) and not isinstance(every, bool) and 0 < int(every) < NEVER:
        return EverySteps(int(every))
    if callable(getattr(every, "next_step", None)) and not isinstance(every, type):
        if hasattr(every, "observe") != hasattr(every, "agree"):
            raise OptionError(
                where="every=",
                expected="a policy with both methods observe(observation) and agree(wish, step), or with neither",
                found=f"a {type(every).__name__} with one of them",
                todo="add the other method: see deepfreeze.plan.LearningPolicy",
            )
        return every  # type: ignore[return-value]
    raise OptionError(
        where="every=",
        expected="a whole number of steps, 1 or more, or a policy",
        found=repr(every)[:200],
        todo="pass e.g. every=15",
    )
