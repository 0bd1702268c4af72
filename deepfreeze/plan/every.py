"""The values of the option ``every=``: the policies whose rule is fixed, and the policies that a number or a word stands for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any

from deepfreeze import arguments
from deepfreeze.errors import OptionError
from deepfreeze.plan.auto import Auto
from deepfreeze.plan.never import NEVER
from deepfreeze.plan.observation import Observation
from deepfreeze.plan.policy import NO_WISH, Policy, Wish


@dataclass(frozen=True)
class EverySteps:
    """Every ``k`` steps: k, 2k, 3k, ... ``skip``: of the first so many steps none is saved. Raises ``OptionError``."""

    k: int
    skip: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "k", arguments.whole_number("EverySteps(k)", self.k, 1, NEVER - 1))
        object.__setattr__(self, "skip", arguments.whole_number("EverySteps(skip=)", self.skip, 0, NEVER - 1))

    def next_step(self, step: int) -> int:
        """The next multiple of k above ``step`` and ``skip``."""
        return (max(step, self.skip) // self.k + 1) * self.k

    def __str__(self) -> str:
        return f"EverySteps({self.k}, skip={self.skip})" if self.skip else str(self.k)  # as in the user's every=15


@dataclass
class EveryEpoch:
    """A checkpoint at the end of every ``n``-th epoch of a ``fit``, counted from the ``fit``'s first epoch on, also after a resume. It is
    captured in the graph, as any other, where the epoch's last step is known beforehand; else between two executions, when the epoch
    has ended. ``skip``: at the end of the first so many epochs no checkpoint is taken. Raises ``OptionError``."""

    n: int = 1
    skip: int = 0
    _last: int = field(default=-1, init=False, repr=False, compare=False)  # the step at which such an epoch ends

    def __post_init__(self) -> None:
        self.n = arguments.whole_number("EveryEpoch(n)", self.n, 1, NEVER - 1)
        self.skip = arguments.whole_number("EveryEpoch(skip=)", self.skip, 0, NEVER - 1)

    def next_step(self, step: int) -> int:
        """The epoch's last step, if it is known and comes after ``step``."""
        return self._last if step < self._last else NEVER

    def epoch_ends(self, epoch: int, step: int | None) -> None:
        """Notes where an epoch ends that is to be saved."""
        self._last = step if step is not None and epoch > self.skip and epoch % self.n == 0 else -1


@dataclass
class EverySeconds:
    """A checkpoint when the last one, or the beginning of the training, is ``seconds`` ago. Rank 0's clock counts. The time is that of
    all calls of ``fit``, and of all that the program does between their steps. Raises ``OptionError``."""

    seconds: float
    _since: float = field(default=0.0, init=False, repr=False, compare=False)  # seconds since the last capture

    def __post_init__(self) -> None:
        self.seconds = arguments.seconds("EverySeconds(seconds)", self.seconds)

    def next_step(self, step: int) -> int:
        """``NEVER``: no step is due by its number."""
        return NEVER

    def observe(self, observation: Observation) -> Wish:
        """Wishes for a checkpoint when it is time."""
        self._since += observation.seconds + observation.blocking
        if observation.captured is not None:
            self._since = 0.0
        return Wish(now=True) if observation.rank == 0 and self._since >= self.seconds else NO_WISH

    def agree(self, interval: int, step: int) -> None:
        """Another policy's interval: it does not matter here."""


@dataclass(frozen=True)
class OnSignal:
    """A checkpoint soon after any rank has received the signal ``number`` (``signal.SIGUSR1``, or "SIGUSR1"), and training goes on. A
    handler that the program had for the signal is called too. Raises ``OptionError``."""

    number: int | str

    def __post_init__(self) -> None:
        object.__setattr__(self, "number", arguments.signal_number("OnSignal(number)", self.number))

    @property
    def signals(self) -> tuple[int, ...]:
        """The number alone."""
        return (int(self.number),)

    def next_step(self, step: int) -> int:
        """``NEVER``: no step is due by its number."""
        return NEVER

    def observe(self, observation: Observation) -> Wish:
        """Wishes for a checkpoint on the rank that has heard the signal."""
        return Wish(now=True) if self.number in observation.signals else NO_WISH

    def agree(self, interval: int, step: int) -> None:
        """Another policy's interval: it does not matter here."""

    def __str__(self) -> str:
        return f"OnSignal({arguments.signal_name(int(self.number))})"


class FirstOf:
    """A checkpoint whenever one of several policies asks for it: ``FirstOf(EverySteps(1000), EverySeconds(600), OnSignal("SIGUSR1"))``.
    A whole number, "epoch" and any other value of ``every=`` stand for their policy. A checkpoint counts for all parts: after one that
    ``EverySteps`` has asked for, ``EverySeconds`` begins to count anew. The ranks agree on one interval for the whole
    policy, so one part at most should wish for intervals. Raises ``OptionError``."""

    def __init__(self, *policies: Any) -> None:
        arguments.require("FirstOf()", policies, len(policies) > 0, "one policy or more")
        self.parts: tuple[Policy, ...] = tuple(as_policy(policy) for policy in policies)

    def next_step(self, step: int) -> int:
        """The first of the parts' next steps."""
        return min(part.next_step(step) for part in self.parts)

    def __str__(self) -> str:
        return f"FirstOf({', '.join(map(str, self.parts))})"


WORDS: dict[str, Callable[[], Policy]] = {"auto": Auto, "epoch": EveryEpoch}


def as_policy(every: object) -> Policy:
    """The policy that the option ``every`` stands for: ``EverySteps(15)`` for 15, ``Auto()`` for "auto", ``EveryEpoch()`` for "epoch"; a
    policy object is returned as it is. ``OptionError`` for any other value, and for an object that observes and can't be told what the
    ranks agree on."""
    if isinstance(every, str) and every in WORDS:
        return WORDS[every]()
    if isinstance(every, Integral) and not isinstance(every, bool) and 0 < int(every) < NEVER:
        return EverySteps(int(every))
    if callable(getattr(every, "next_step", None)) and not isinstance(every, type):
        if hasattr(every, "observe") != hasattr(every, "agree"):
            raise OptionError(
                where="every=",
                expected="a policy with both methods observe(observation) and agree(interval, step), or with neither",
                found=f"a {type(every).__name__} with one of them",
                todo="add the other method: see deepfreeze.plan.LearningPolicy",
            )
        return every  # type: ignore[return-value]
    raise OptionError(
        where="every=",
        expected="a whole number of steps, 1 or more, 'auto', 'epoch', or a policy",
        found=repr(every)[:200],
        todo="pass e.g. every=15",
    )
