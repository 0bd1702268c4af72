"""Goodput of a job that is killed again and again, in two ways that share no code: PCcheck's closed formula (ASPLOS 2025, as its
artifact has it), and a replay that steps through the kills one by one. Imports the standard library alone."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

# Policies of the closed formula: what a kill loses besides the time to load.
SYNCHRONOUS = "synchronous"  # training waits for the commit: half an interval (also PCcheck's "ideal")
ONE = "CheckFreq"  # one uncommitted checkpoint: half of at most two intervals
SEVERAL = "PCcheck"  # N uncommitted checkpoints: half an interval, and half of the time until the commit
NOTHING = "bound"  # no work is lost


@dataclass(frozen=True)
class Job:
    """A training under one policy, times in seconds. ``plain``: a step without checkpoints; ``step``: the mean step with a checkpoint every
    ``every`` steps; ``load``: from a kill until the training takes its next step; ``commit``: from the hand-over to the commit;
    ``uncommitted``: checkpoints that may be on their way at once."""

    policy: str
    plain: float
    step: float
    every: int
    load: float
    commit: float = 0.0
    uncommitted: int = 1

    @property
    def redo(self) -> float:
        """Seconds that a kill costs by the closed formula."""
        interval = self.every * self.plain
        lost = {
            SYNCHRONOUS: interval / 2,
            ONE: interval,
            SEVERAL: interval / 2 + min(self.commit, self.uncommitted * interval) / 2,
            NOTHING: 0.0,
        }
        return self.load + lost[self.policy]

    @property
    def redo_on_average(self) -> float:
        """Seconds that a kill at a random moment costs on average: at that moment the newest committed checkpoint was captured
        ``commit`` seconds ago, and up to an interval more."""
        return self.load + self.every * self.step / 2 + self.commit


def goodput(job: Job, seconds: float, events: int) -> float:
    """Useful steps per second by the closed formula, 0 at least: of ``seconds`` each event takes ``job.redo``."""
    return max(0.0, (seconds - events * job.redo) / (job.step * seconds))


def load_of(goodput: float, step: float, seconds: float, events: int, lost: float) -> float:
    """The closed formula solved for the time to load: ``lost``: the other seconds that an event costs."""
    return seconds * (1 - goodput * step) / events - lost


def commit_of(goodput: float, job: Job, seconds: float, events: int) -> float:
    """The closed formula of ``SEVERAL`` solved for the time until the commit."""
    return 2 * load_of(goodput, job.step, seconds, events, job.load + job.every * job.plain / 2)


def replayed(job: Job, seconds: float, events: Sequence[float]) -> float:
    """Useful steps per second of a job that is killed at each of ``events`` (seconds, ascending), stepped through one by one.

    A step that is a multiple of ``every`` hands a checkpoint over, which counts ``commit`` seconds later; while ``uncommitted`` of them
    are on their way training waits. A kill takes the step under way, all steps after the newest committed checkpoint, and the
    checkpoints on their way. Training goes on ``load`` seconds later, unless the next kill comes before."""
    now, done, committed = 0.0, 0, 0
    under_way: deque[tuple[float, int]] = deque()  # (when it is committed, its step), the oldest first
    for end in (*(event for event in events if event < seconds), seconds):
        while True:
            over = now + job.step
            if (done + 1) % job.every == 0 and len(under_way) == job.uncommitted:
                over = max(over, under_way[0][0])
            reached = min(over, end)
            while under_way and under_way[0][0] <= reached:
                committed = under_way.popleft()[1]
            if over > end:
                break
            now, done = over, done + 1
            if done % job.every == 0:
                under_way.append((now + job.commit, done))
        if end < seconds:
            done = committed
            under_way.clear()
            now = end + job.load
    return done / seconds
