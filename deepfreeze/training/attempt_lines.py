"""The two lines that rank 0 prints of an attempt by default (``verbose=1``): from where training goes on, and what was saved."""

from __future__ import annotations

import os
from dataclasses import dataclass

from deepfreeze import wording
from deepfreeze.events.stats import Stats


def resumed(run: str, step: int, created: str, now: float) -> str:
    """The first line, if a checkpoint was restored. ``created``: when it was committed, as its manifest has it; ``now``: seconds since
    1970."""
    return f"{shown(run)} resumed at step {step}, saved {wording.age(created, now)} ago"


def fresh(run: str, resume: str) -> str:
    """The first line, if no checkpoint was restored. ``resume``: the option of this name."""
    return f"{shown(run)} is new" if resume != "off" else f'{shown(run)}: nothing is restored (resume="off")'


@dataclass(frozen=True)
class Before:
    """The figures of ``Stats`` when an attempt begins: its last line tells of what came after them."""

    captures: int
    commits: int
    waited: float

    @classmethod
    def of(cls, stats: Stats) -> Before:
        """The figures as they are now."""
        return cls(stats.captures, stats.commits, stats.waited)


def end(before: Before, stats: Stats, file_size: int) -> str | None:
    """The last line; None if nothing was captured since ``before``. ``file_size``: bytes of a checkpoint's model file."""
    captures, commits = stats.captures - before.captures, stats.commits - before.commits
    if captures == 0:
        return None
    saved = wording.count(commits, "checkpoint")
    if commits < captures:
        saved = f"{commits} of {wording.count(captures, 'checkpoint')}"
    newest = f"; newest step {next(reversed(stats.committed))}" if commits else ""
    waited = wording.duration(stats.waited - before.waited)
    return f"{saved}, {wording.size(commits * file_size)}, training waited {waited}{newest}"


def shown(run: str) -> str:
    """The run as the user knows it: relative to the working directory if it is below it."""
    near = os.path.relpath(run) if os.path.isabs(run) else run
    return run if near.startswith("..") else near
