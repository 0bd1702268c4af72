"""The policy that a signal triggers."""

from __future__ import annotations

from dataclasses import dataclass

from deepfreeze import arguments
from deepfreeze.plan.never import NEVER
from deepfreeze.plan.observation import Observation
from deepfreeze.plan.policy import NO_WISH, Wish


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
