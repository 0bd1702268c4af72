"""The run that a training has open: the run's lock, and all that is given back with it."""

from __future__ import annotations

import contextlib

from deepfreeze.training.first_step import FirstStep
from deepfreeze.training.start import Start


class OpenRun:
    """A run that is open for a training, from the start of an ``attempt`` until ``close``.

    ``file_size``: bytes of a checkpoint's model file, 0 until it is known; ``begun``: whether a ``fit`` or a loop has begun;
    ``finished``: whether the training has come to its end;
    ``error``: the error that ended it, as text; ``closing``: to which each part that is opened later adds the function that closes it;
    ``first_step``: is told of the first new step, None on other ranks than rank 0.

    ``close`` closes the parts in the reverse order in which they were opened. So the engine stops before the memory that it reads is given
    back, and the run's lock is given back last."""

    def __init__(self, attempt: Start) -> None:
        self.attempt = attempt
        self.closing = contextlib.ExitStack()
        self.closing.callback(attempt.close)
        self.file_size = 0
        self.begun = self.finished = False
        self.error: str | None = None
        self.first_step: FirstStep | None = None

    def close(self) -> None:
        """Closes all parts, also if closing one of them raises; raises the last error at the end. Safe to call twice."""
        self.closing.close()
