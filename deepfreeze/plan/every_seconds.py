"""The policy of so many seconds."""

from __future__ import annotations

from dataclasses import dataclass, field

from deepfreeze import arguments
from deepfreeze.plan.never import NEVER
from deepfreeze.plan.observation import Observation
from deepfreeze.plan.policy import NO_WISH, Wish


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
