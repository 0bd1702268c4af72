"""The policy of every k steps."""

from __future__ import annotations

from dataclasses import dataclass

from deepfreeze import arguments
from deepfreeze.plan.never import NEVER


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
