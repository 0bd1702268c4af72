"""What no rank may do alone while training goes on: end it, raise, or skip a checkpoint. Imports TensorFlow."""

from __future__ import annotations

from deepfreeze.core.errors import EngineError, Error
from deepfreeze.core.sigterm import Sigterm
from deepfreeze.core.world import World
from deepfreeze.freeze.control_word import Agreed, ControlWord, Slot


class Agreement:
    """One rank's part in it during one ``fit``, from construction to ``close``.

    ``emit`` belongs into the train function's graph, if ``in_graph``; ``settle`` is called once after each execution of it. With one rank
    there is nobody to ask, and everything is agreed at once.
    """

    def __init__(self, world: World, hears_sigterm: bool, in_graph: bool) -> None:
        self._world = world
        self._word = ControlWord(world, in_graph)
        self._sigterm = Sigterm() if hears_sigterm else None
        self.failure: Error | None = None  # this rank's first one
        self.emit = self._word.emit

    def fail(self, error: Error) -> None:
        """This rank can't go on: after the next execution ``settle`` raises on every rank. Raised here and now, it would leave
        the others in the middle of a step, waiting for this rank."""
        self.failure = self.failure or error
        self._word.propose(Slot.FAILED, 1 + self._world.rank)

    def skip(self, step: int) -> None:
        """This rank has no room for the capture of ``step`` (0: it has, or nothing is due)."""
        self._word.propose(Slot.SKIP, step)

    def settle(self) -> Agreed:
        """What all ranks know since the execution that has just ended. Raises this rank's failure, or an ``EngineError`` that
        names the rank that failed."""
        if self._sigterm is not None and self._sigterm.received:
            self._word.propose(Slot.STOP, self._sigterm.received)
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
