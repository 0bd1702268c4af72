"""Whether the end of the job is so near that it is time for the last checkpoint."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

_COMMITS = 1.5  # a commit may take longer than the longest so far
_FIRST_COMMIT = 60.0  # seconds that are kept free before anything is known of commits
_EXECUTIONS = 2  # the one that is under way when the ranks agree, and one more
_MEETING = 1.0  # seconds until the ranks of a hand-written loop meet
_NEWEST = 16  # executions whose longest counts


class JobEnd:
    """The end of a job, as rank 0's training thread sees it come. It calls all methods."""

    def __init__(self, ends_at: float | None, now: float) -> None:
        """``ends_at``: when the job will be ended, in Unix seconds; None: it has no end, and ``near`` is never true. ``now``: seconds, by
        the clock that ``execution_ended`` is told."""
        self._ends_at = ends_at
        self._last = now
        self._executions: deque[float] = deque(maxlen=_NEWEST)
        self._commit: float | None = None  # the longest so far

    def execution_ended(self, now: float) -> None:
        """To be called once after each execution, with the present time in seconds."""
        self._executions.append(now - self._last)
        self._last = now

    def committed(self, seconds: Iterable[float]) -> None:
        """Takes in the seconds from hand-over to commit of checkpoints; a negative number is of one that is not committed."""
        for one in seconds:
            if one > (self._commit or 0.0):
                self._commit = one

    def near(self, now: float) -> bool:
        """Whether one and a half times the longest commit so far, and two executions, would not fit any more before the end. ``now``: Unix
        seconds."""
        if self._ends_at is None:
            return False
        commit = _FIRST_COMMIT if self._commit is None else _COMMITS * self._commit
        return now + commit + _EXECUTIONS * max(self._executions, default=0.0) + _MEETING >= self._ends_at
