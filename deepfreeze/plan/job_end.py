"""Whether the end of the job is so near that it is time for the last checkpoint."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable

_COMMITS = 1.5  # a commit may take longer than the longest so far
_FIRST_COMMIT = 60.0  # seconds that are kept free before anything is known of commits ...
_OF_THE_TIME = 0.1  # ... but no more than this part of the time that is left when training begins
_EXECUTIONS = 2  # the one that is under way when the ranks agree, and one more
_MEETING = 1.0  # seconds until the ranks of a hand-written loop meet
_NEWEST = 16  # executions whose longest counts


class JobEnd:
    """The end of a job, as rank 0's training thread sees it come in one ``fit``. The thread calls all methods. Times are given to it:
    ``now`` in Unix seconds, ``timer`` in seconds of a clock that nobody sets. ``longest``: seconds of the longest commit so far, None
    before the first."""

    def __init__(self, ends_at: float | None, now: float, timer: float, longest: float | None = None) -> None:
        """``ends_at``: when the job will be ended, in Unix seconds; None: it has no end, and is never ``near``. ``longest``: what an
        earlier ``fit`` of the program has found."""
        self.longest = longest
        self._ends_at = ends_at
        self._first = min(_FIRST_COMMIT, max(0.0, _OF_THE_TIME * (ends_at - now))) if ends_at is not None else 0.0
        self._last = timer
        self._traced = False  # the first execution, which traces the train function, has ended
        self._executions: deque[float] = deque(maxlen=_NEWEST)
        self._saved: dict[int, float] = {}  # when the checkpoints were captured that may be unfinished, by step

    @property
    def known(self) -> bool:
        """Whether the job has an end that is known. If not, ``near`` need not be asked in each step."""
        return self._ends_at is not None

    def execution_ended(self, timer: float) -> None:
        """To be called once after each execution."""
        if self._traced:
            self._executions.append(timer - self._last)
        self._traced, self._last = True, timer

    def saved(self, step: int, timer: float) -> None:
        """To be called once for each checkpoint that is captured."""
        if self._ends_at is not None:
            self._saved[step] = timer

    def committed(self, seconds: Iterable[float]) -> None:
        """Takes in the seconds from hand-over to commit of checkpoints; a negative number is of one that is not committed."""
        for one in seconds:
            if one > (self.longest or 0.0):
                self.longest = one

    def near(self, now: float, timer: float, unfinished: Collection[int]) -> bool:
        """Whether two executions and the last checkpoint's commit would not fit any more before the end. A commit is taken for one and a
        half times as long as the longest so far. The last one comes behind those of the ``unfinished`` steps, each of which may take as
        long. They may end in any order."""
        if self._ends_at is None:
            return False
        commit = self._first if self.longest is None else _COMMITS * self.longest
        self._saved = {step: since for step, since in self._saved.items() if step in unfinished}
        if self._saved:
            commit = max(commit, timer - min(self._saved.values()))  # the oldest has taken so long already
        needed = (1 + len(unfinished)) * commit + _EXECUTIONS * max(self._executions, default=0.0) + _MEETING
        return now + needed >= self._ends_at
