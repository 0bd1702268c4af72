"""The policy that is made of others."""

from __future__ import annotations

from typing import Any

from deepfreeze import arguments
from deepfreeze.plan.every import as_policy
from deepfreeze.plan.policy import Policy


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
