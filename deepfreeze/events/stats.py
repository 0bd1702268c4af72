"""Figures of what a callback has done so far, for the user: a listener that counts the events of the training. Their size is bounded,
because a training may take millions of checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from deepfreeze.events.event import (
    Attempt,
    Blocked,
    Captured,
    Decision,
    Diverged,
    Event,
    External,
    Failed,
    Local,
    Measured,
    Progress,
    Skipped,
    Stop,
    Superseded,
    Unfinished,
)

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


class Interval(NamedTuple):
    """From ``step`` on, a checkpoint every ``interval`` steps. ``reason``: as in the event ``Decision``, None of a policy that gives
    none."""

    step: int
    interval: int
    reason: str | None


@dataclass
class Stats:
    """What a ``Checkpoint`` has done so far on this rank. Lists and mappings have the newest 1000 entries; the counts and the histogram are
    of all checkpoints."""

    #: the step that was restored, None if none was
    resumed: int | None = None
    #: steps that were captured
    steps: list[int] = field(default_factory=Newest)
    #: steps that were due and were skipped, because some rank had no memory for them (Engine(when_full=))
    skipped: list[int] = field(default_factory=Newest)
    #: steps that were captured and given up for newer ones, without a failure (Engine(transfers=), Engine(when_full="replace"))
    superseded: list[int] = field(default_factory=Newest)
    #: the name of the signal that ended training ("SIGTERM"), "ends_at" if the end of the job did, else None
    stopped: str | None = None
    #: on rank 0: step -> name of the first tensor that differs between ranks, or differed when the ranks were last compared
    diverged: dict[int, str] = field(default_factory=NewestByStep)
    #: for each of ``steps``, the seconds that its checkpoint held up training
    blocking: list[float] = field(default_factory=Newest)
    #: step -> seconds from the hand-over to the engine until the commit
    committed: dict[int, float] = field(default_factory=NewestByStep)
    #: step -> seconds from the hand-over to the engine until this rank's part was on the local tier
    local: dict[int, float] = field(default_factory=NewestByStep)
    #: on rank 0: how far the checkpoints are that are on their way for a second or more, the oldest first, as of the last second
    unfinished: tuple[Unfinished, ...] = ()
    #: bytes of this rank's part of one checkpoint, 0 before the first capture
    nbytes: int = 0
    #: how many checkpoints were captured, how many committed, and how many given up for newer ones
    captures: int = 0
    commits: int = 0
    given_up: int = 0
    #: how many seconds all checkpoints together held up training
    waited: float = 0.0
    #: the intervals that the ranks have agreed on, for a policy that learns them
    intervals: list[Interval] = field(default_factory=Newest)
    #: by which fraction the last checkpoints have lengthened the training on this rank, None while no policy has measured it
    overhead: float | None = None
    #: upper bound in seconds -> how many captures held up training for less than this bound, and for no less than the bound before
    histogram: dict[float, int] = field(default_factory=lambda: dict.fromkeys(BINS, 0))

    def on(self, event: Event) -> None:
        """Enters an event of the training. The training thread calls it."""
        enter = _ENTER.get(type(event))
        if enter is not None:
            enter(self, event)

    def _attempt(self, event: Attempt) -> None:
        self.stopped, self.unfinished = None, ()  # an earlier training's
        if not event.again:
            self.resumed = event.resumed

    def _captured(self, event: Captured) -> None:
        assert event.step is not None
        self.steps.append(event.step)
        self.blocking.append(0.0)
        self.captures += 1
        self.nbytes = event.nbytes
        self.histogram[BINS[0]] += 1

    def _blocked(self, event: Blocked) -> None:
        # The callback's other work after the execution is done, and timed, only after the capture.
        for n in range(len(self.steps) - 1, -1, -1):
            if self.steps[n] == event.step:
                self.waited += event.seconds - self.blocking[n]
                self.histogram[_bin(self.blocking[n])] -= 1
                self.blocking[n] = event.seconds
                self.histogram[_bin(event.seconds)] += 1
                return

    def _skipped(self, event: Skipped) -> None:
        if event.why in ("full", "storage"):
            assert event.step is not None
            self.skipped.append(event.step)

    def _local(self, event: Local) -> None:
        assert event.step is not None
        self.local[event.step] = event.seconds

    def _external(self, event: External) -> None:
        assert event.step is not None
        self._ended(event)
        self.commits += 1
        self.committed[event.step] = event.seconds

    def _superseded(self, event: Superseded) -> None:
        self._ended(event)
        self.superseded.append(event.step)
        self.given_up += 1

    def _ended(self, event: External | Failed | Superseded) -> None:
        if self.unfinished:
            self.unfinished = tuple(one for one in self.unfinished if one.step != event.step)

    def _progress(self, event: Progress) -> None:
        self.unfinished = event.unfinished

    def _diverged(self, event: Diverged) -> None:
        if event.tensor is not None:
            assert event.step is not None
            self.diverged[event.step] = event.tensor

    def _decision(self, event: Decision) -> None:
        self.intervals.append(Interval(event.step, event.after, event.reason))

    def _measured(self, event: Measured) -> None:
        self.overhead = event.overhead

    def _stop(self, event: Stop) -> None:
        self.stopped = event.signal or "ends_at"


_ENTER: dict[type[Event], Callable[[Stats, Any], None]] = {
    Attempt: Stats._attempt,
    Captured: Stats._captured,
    Blocked: Stats._blocked,
    Skipped: Stats._skipped,
    Local: Stats._local,
    External: Stats._external,
    Failed: Stats._ended,
    Superseded: Stats._superseded,
    Diverged: Stats._diverged,
    Decision: Stats._decision,
    Measured: Stats._measured,
    Progress: Stats._progress,
    Stop: Stats._stop,
}


def _bin(seconds: float, bounds: Iterable[float] = BINS) -> float:
    return next(bound for bound in bounds if seconds < bound)
