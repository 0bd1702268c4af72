"""When the job of one callback, or of one loop, will be ended."""

from __future__ import annotations

import os
import time

from deepfreeze.launch import job_ends_at
from deepfreeze.notices import Notify
from deepfreeze.plan.job_end import JobEnd
from deepfreeze.ranks.world import World


class JobEnds:
    """The end of the job, for each ``fit`` anew. Rank 0 alone looks out for it, and asks the scheduler once. ``ends_at``: the option of
    this name."""

    def __init__(self, ends_at: float | str | None) -> None:
        self._ends_at = ends_at
        self._last: JobEnd | None = None  # as the last ``fit`` has seen it

    def next(self, world: World, notify: Notify) -> JobEnd:
        """The end as the ``fit`` that begins sees it. ``OptionError`` if DEEPFREEZE_ENDS_AT is no time."""
        if world.rank == 0 and self._ends_at == "auto":
            self._ends_at = job_ends_at(os.environ, notify)
        ends_at = self._ends_at if world.rank == 0 and not isinstance(self._ends_at, str) else None
        longest = self._last.longest if self._last is not None else None
        self._last = JobEnd(ends_at, time.time(), time.monotonic(), longest)
        return self._last
