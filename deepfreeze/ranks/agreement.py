"""The three things that no rank may do alone while training goes on: end the training, raise an error, skip a checkpoint."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from deepfreeze.errors import EngineError, Error
from deepfreeze.notices import Notify
from deepfreeze.ranks.control_word import ControlWord, Field, GraphMaximum
from deepfreeze.ranks.meetings import Meetings
from deepfreeze.ranks.signals import Signals
from deepfreeze.ranks.world import World

# In the place of a signal's number: the scheduler will end the job soon. Greater than any signal's number.
JOB_ENDS = 128
# In the same place: the last step of a rehearsal is done (``plan/rehearsal``). No field has it, because the ranks agree by the step alone.
REHEARSAL_ENDS = 129


@dataclass(frozen=True)
class Agreed:
    """What the ranks have agreed on, the same on every rank after the same execution. ``stop``: the number of a signal after which training
    ends, 0 for none; ``skip``: the step that is not to be captured, 0 for none."""

    stop: int
    skip: int


class Agreement:
    """One rank's part in the agreement during one training, from construction to ``close``. Every method is called by the training
    thread, between two executions of the train function. ``failure``: this rank's first error, None if it has none; ``signals``: what this
    process has heard.

    With a single rank ``settle`` returns what this rank has proposed."""

    def __init__(
        self,
        world: World,
        last: Sequence[int],
        notify: Notify,
        noted: Sequence[int] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``last``: signals to this process that ask for a last checkpoint; ``noted``: signals that are noted for the policy;
        ``notify``: see ``Signals``; ``clock``: see ``Meetings``."""
        self._world = world
        self._word = ControlWord(world)
        self._stop = self._word.field("stop")  # number of a signal that asks for a last checkpoint
        self._failed = self._word.field("failed")  # 1 + rank that can't go on
        self._skip = self._word.field("skip")  # step that is not to be captured, because an engine is full
        self._meetings: Meetings | None = Meetings(self._word.field("pace"), clock)
        self.signals = Signals(last, noted, notify)
        self._rehearsal = ""  # the name of the rehearsal that is over
        self.failure: Error | None = None

    def field(self, name: str) -> Field:
        """A field of the control word for another part of the training. Before ``seal``."""
        return self._word.field(name)

    def seal(self) -> tuple[str, ...]:
        """Collective: see ``ControlWord.seal``. Returns the names of all fields."""
        self._word.seal()
        return self._word.names

    def connect(self, in_graph: GraphMaximum | None) -> None:
        """``in_graph``: see ``ControlWord.connect``."""
        self._word.connect(in_graph)
        if in_graph is not None or self._world.size == 1:
            self._meetings = None  # to look after every execution costs nothing

    def fail(self, error: Error) -> None:
        """Notes that this rank can't go on: ``settle`` after a later execution raises on every rank. If this rank raised the error at
        once, the other ranks would wait for it in the middle of a step. A second error is ignored."""
        self.failure = self.failure or error
        self._failed.propose(1 + self._world.rank)

    def give_up(self, error: Error) -> None:
        """Ends training, whatever ``on_error`` says. A single rank raises ``error`` now; several do after a later execution, as for
        ``fail``."""
        if self._world.size == 1:
            raise error
        self.fail(error)

    def skip(self, step: int) -> None:
        """Proposes to skip the capture of ``step``, because this rank's engine has no memory for it. 0 takes the proposal back."""
        self._skip.propose(step)

    def settle(self, soon: bool) -> Agreed:
        """The values that the ranks have agreed on. To be called once after each execution, on every rank. ``soon``: the ranks meet after
        this execution, the same on every rank; otherwise they may go on with the values of their last meeting, for about a second.

        If a rank has failed, every rank raises: the failed rank its own error, the others an ``EngineError`` that names it."""
        if self.signals.last:
            self._stop.propose(self.signals.last)
        if self._meetings is None:
            self._word.meet()
        elif self._meetings.due(soon):
            self._word.meet()
            self._meetings.met()
        if self._failed.agreed:
            raise self.failure or EngineError(
                where=f"rank {self._failed.agreed - 1}",
                expected="its checkpoints to go well",
                found="a failure, which ends training on all ranks at this step",
                todo="see the error that it reports",
            )
        return Agreed(self._stop.agreed or (REHEARSAL_ENDS if self._rehearsal else 0), self._skip.agreed)

    def end(self) -> None:
        """Proposes to end training after a last checkpoint, because the job will be ended soon."""
        self._stop.propose(JOB_ENDS)

    def end_rehearsal(self, name: str) -> None:
        """Ends training after this execution, because the rehearsal of this ``name`` is over. Every rank calls it after the same execution,
        so the ranks need not agree."""
        self._rehearsal = name

    def stop_name(self, number: int) -> str | None:
        """The name of what ends training: of the signal ``number``; None for ``JOB_ENDS``; the rehearsal's for ``REHEARSAL_ENDS``."""
        return (
            self._rehearsal if number == REHEARSAL_ENDS else None if number == JOB_ENDS else signal.Signals(number).name
        )

    def close(self) -> None:
        """Gives the signals back to the handlers that had them before. May be called twice."""
        self.signals.close()
