"""The policy of every n epochs."""

from __future__ import annotations

from dataclasses import dataclass, field

from deepfreeze import arguments
from deepfreeze.plan.never import NEVER


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
