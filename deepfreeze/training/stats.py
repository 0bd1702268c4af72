"""Figures of what a callback has done so far, for the user. Their size is bounded, because a training may take millions of checkpoints."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeVar

T = TypeVar("T")

KEPT = 1000  # how many of the newest entries each list and mapping keeps
# Upper bounds of the histogram's bins, in seconds.
BINS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, float("inf"))


class Newest(list[T]):
    """A list whose ``append`` keeps the newest ``KEPT`` elements."""

    def append(self, value: T) -> None:
        """Adds an element at the end, and removes the first one if there are more than ``KEPT``."""
        super().append(value)
        if len(self) > KEPT:
            del self[0]


class NewestByStep(dict[int, T]):
    """A mapping whose assignments keep the newest ``KEPT`` keys."""

    def __setitem__(self, step: int, value: T) -> None:
        super().__setitem__(step, value)
        if len(self) > KEPT:
            del self[next(iter(self))]


@dataclass
class Stats:
    """What a ``Checkpoint`` has done so far on this rank. Lists and mappings have the newest 1000 entries; the counts and the histogram are
    of all checkpoints."""

    #: the step that was restored, None if none was
    resumed: int | None = None
    #: steps that were captured
    steps: list[int] = field(default_factory=Newest)
    #: steps that were due and were skipped, because some rank had no memory for them (Engine(when_full="skip"))
    skipped: list[int] = field(default_factory=Newest)
    #: "SIGTERM" if this signal ended training, else None
    stopped: str | None = None
    #: on rank 0: step -> name of the first tensor that differs between ranks, or differed when the ranks were last compared
    diverged: dict[int, str] = field(default_factory=NewestByStep)
    #: for each of ``steps``, the seconds that its checkpoint held up training
    blocking: list[float] = field(default_factory=Newest)
    #: step -> seconds from the hand-over to the engine until the commit
    committed: dict[int, float] = field(default_factory=NewestByStep)
    #: step -> seconds from the hand-over to the engine until this rank's part was on the local tier
    local: dict[int, float] = field(default_factory=NewestByStep)
    #: bytes of this rank's part of one checkpoint
    nbytes: int = 0
    #: how many checkpoints were captured, and how many committed
    captures: int = 0
    commits: int = 0
    #: upper bound in seconds -> how many captures held up training for less than this bound, and for no less than the bound before
    histogram: dict[float, int] = field(default_factory=lambda: dict.fromkeys(BINS, 0))

    def note_capture(self, step: int, seconds: float) -> None:
        """Adds a capture of ``step``, which has held up training for ``seconds``."""
        self.steps.append(step)
        self.blocking.append(seconds)
        self.captures += 1
        self.histogram[_bin(seconds)] += 1

    def note_more_blocking(self, step: int, seconds: float) -> None:
        """Corrects the time of the last capture of ``step``: it has held up training for ``seconds`` in all. The callback's other work
        after the execution is done, and timed, only after ``note_capture``."""
        for n in range(len(self.steps) - 1, -1, -1):
            if self.steps[n] == step:
                self.histogram[_bin(self.blocking[n])] -= 1
                self.blocking[n] = seconds
                self.histogram[_bin(seconds)] += 1
                return

    def note_commit(self, step: int, seconds: float) -> None:
        """Adds a commit of ``step``, ``seconds`` after the checkpoint was handed over."""
        if step not in self.committed:
            self.commits += 1
        self.committed[step] = seconds


def _bin(seconds: float, bounds: Iterable[float] = BINS) -> float:
    return next(bound for bound in bounds if seconds < bound)
