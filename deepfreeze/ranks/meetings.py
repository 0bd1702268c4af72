"""When ranks meet that have no graph to agree in: seldom enough to cost nothing, often enough to hear a signal within about a second.

Every rank must meet after the same execution, so no rank may go by its own clock. At each meeting the ranks agree on the pace of their
slowest. That number alone says how many executions they run until the next meeting.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from deepfreeze.ranks.control_word import Field

_SECONDS = 1.0  # about how long it takes from one meeting to the next
_MOST = 1000  # executions without a meeting, so that a training that becomes slower is soon noticed


class Meetings:
    """Counts the executions of one training. The training thread of every rank calls the methods, in the same order."""

    def __init__(self, pace: Field, clock: Callable[[], float] = time.monotonic) -> None:
        """``pace``: the field by which the ranks agree on the microseconds of the slowest rank's execution; ``clock``: seconds, on any
        clock of this rank that does not go back."""
        self._pace, self._clock = pace, clock
        self._executions = 0  # since the last meeting
        self._began = clock()
        self.every = 1

    def due(self, soon: bool) -> bool:
        """Whether the ranks meet after the execution that has just ended. ``soon``: they must, the same on every rank. To be called after
        each execution; ``met`` follows if the ranks meet. ``every``: after so many executions they meet at the latest."""
        self._executions += 1
        if not soon and self._executions < self.every:
            return False
        self._pace.propose(int((self._clock() - self._began) / self._executions * 1e6))
        return True

    def met(self) -> None:
        """To be called after each meeting."""
        slowest = max(1, self._pace.agreed)
        self.every = max(1, min(_MOST, int(_SECONDS * 1e6 / slowest)))
        self._executions, self._began = 0, self._clock()
