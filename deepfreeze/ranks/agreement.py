"""What no rank may do alone while training goes on: end it, raise, or skip a checkpoint."""

from __future__ import annotations

from deepfreeze.errors import EngineError, Error
from deepfreeze.ranks.control_word import Agreed, ControlWord, Field, GraphMaximum
from deepfreeze.ranks.signals import Sigterm
from deepfreeze.ranks.world import World


class Agreement:
    """One rank's part in the agreement during one training, from construction to ``close``. ``settle`` is called once after each
    execution of the train function. A single rank has nobody to ask: everything is agreed at once."""

    def __init__(self, world: World, hears_sigterm: bool, in_graph: GraphMaximum | None) -> None:
        self._world = world
        self._word = ControlWord(world, in_graph)
        self._sigterm = Sigterm() if hears_sigterm else None
        self.failure: Error | None = None  # this rank's first one

    def fail(self, error: Error) -> None:
        """This rank can't go on: after the next execution ``settle`` raises on every rank. Raised here and now, the error would
        leave the other ranks in the middle of a step, waiting for this rank."""
        self.failure = self.failure or error
        self._word.propose(Field.FAILED, 1 + self._world.rank)

    def skip(self, step: int) -> None:
        """This rank has no room for the capture of ``step`` (0: it has room, or no capture is due)."""
        self._word.propose(Field.SKIP, step)

    def settle(self) -> Agreed:
        """The values that all ranks know since the execution that has just ended. Raises this rank's failure, or an
        ``EngineError`` that names the rank that failed."""
        if self._sigterm is not None and self._sigterm.received:
            self._word.propose(Field.STOP, self._sigterm.received)
        agreed = self._word.agreed()
        if agreed.failed:
            raise self.failure or EngineError(
                where=f"rank {agreed.failed - 1}",
                expected="its checkpoints to go well",
                found="a failure, which ends training on all ranks at this step",
                todo="see the error that it reports",
            )
        return agreed

    def close(self) -> None:
        """Gives the signal back."""
        if self._sigterm is not None:
            self._sigterm.close()
