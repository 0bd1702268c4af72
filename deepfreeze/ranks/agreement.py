"""The three things that no rank may do alone while training goes on: end the training, raise an error, skip a checkpoint."""

from __future__ import annotations

from deepfreeze.errors import EngineError, Error
from deepfreeze.ranks.control_word import Agreed, ControlWord, Field, GraphMaximum
from deepfreeze.ranks.signals import Sigterm
from deepfreeze.ranks.world import World


class Agreement:
    """One rank's part in the agreement during one training, from construction to ``close``. Every method is called by the training
    thread, between two executions of the train function. ``failure``: this rank's first error, None if it has none.

    With a single rank ``settle`` returns what this rank has proposed."""

    def __init__(self, world: World, hears_sigterm: bool, in_graph: GraphMaximum | None) -> None:
        """``hears_sigterm``: whether SIGTERM to this process asks for a last checkpoint; ``in_graph``: see ``ControlWord``."""
        self._world = world
        self._word = ControlWord(world, in_graph)
        self._sigterm = Sigterm() if hears_sigterm else None
        self.failure: Error | None = None

    def fail(self, error: Error) -> None:
        """Notes that this rank can't go on: ``settle`` after the next execution raises on every rank. If this rank raised the error at
        once, the other ranks would wait for it in the middle of a step. A second error is ignored."""
        self.failure = self.failure or error
        self._word.propose(Field.FAILED, 1 + self._world.rank)

    def skip(self, step: int) -> None:
        """Proposes to skip the capture of ``step``, because this rank's engine has no memory for it. 0 takes the proposal back."""
        self._word.propose(Field.SKIP, step)

    def settle(self) -> Agreed:
        """The values that the ranks agreed on in the execution that has just ended. To be called once after each execution, on every
        rank. If a rank has failed, every rank raises: the failed rank its own error, the others an ``EngineError`` that names it."""
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
        """Gives SIGTERM back to the handler that had it before. May be called twice."""
        if self._sigterm is not None:
            self._sigterm.close()
