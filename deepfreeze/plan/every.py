"""What the option ``every=`` may be: the policies that a number or a word stands for."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral

from deepfreeze.errors import OptionError
from deepfreeze.plan.auto import Auto
from deepfreeze.plan.every_epoch import EveryEpoch
from deepfreeze.plan.every_steps import EverySteps
from deepfreeze.plan.never import NEVER
from deepfreeze.plan.policy import Policy

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
