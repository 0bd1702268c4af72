"""The policy that the user has chosen, held against the other options."""

from __future__ import annotations

import signal
from collections.abc import Sequence

from deepfreeze.errors import OptionError
from deepfreeze.plan.every import as_policy
from deepfreeze.plan.policy import EpochPolicy, PlannedPolicy, Policy, parts, signals


def chosen_policy(every: object, last: Sequence[str], loop: bool = False) -> Policy:
    """The policy that ``every`` stands for. ``last``: the names of the signals after which training ends; ``loop``: it is for a loop
    written by hand. ``OptionError`` if ``every`` is no policy, or does not fit."""
    policy = as_policy(every)
    if loop and any(isinstance(part, EpochPolicy) for part in parts(policy)):
        raise OptionError(
            where="every=",
            expected="a policy that needs no epochs: a hand-written loop has none",
            found=str(policy),
            todo="pass a number of steps, or deepfreeze.plan.EverySeconds(...)",
        )
    planned = [part for part in parts(policy) if isinstance(part, PlannedPolicy)]
    if len(planned) > 1:
        raise OptionError(
            where="every=",
            expected="one policy at most that chooses an interval by measurement",
            found=f"{len(planned)}: {', '.join(map(str, planned))}",
            todo="leave all of them but one out: each would take the others' checkpoints for its own",
        )
    both = sorted(set(last) & {signal.Signals(number).name for number in signals(policy)})
    if both:
        raise OptionError(
            where="signals=",
            expected="signals that end training, and no signal of the policy's",
            found=f"{both[0]} in signals= and in every=",
            todo=f"leave {both[0]} out of one of them",
        )
    return policy
