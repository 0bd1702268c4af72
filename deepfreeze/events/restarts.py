"""How long the jobs of a run took to begin, as the beginnings of their files of events say."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Iterator
from dataclasses import dataclass

from deepfreeze.errors import Error
from deepfreeze.events.event import Attempt, Started
from deepfreeze.events.event_lines import is_number, parse
from deepfreeze.format import names
from deepfreeze.store.run import Run

_NEWEST = 20  # jobs that count: a model or a machine may have changed since older ones
_HEAD = 1 << 18  # bytes at the beginning of a file that are read; the first step comes before any checkpoint


@dataclass(frozen=True)
class Restarts:
    """The newest jobs that have told when their first new step was done. ``seconds``: the median time from the beginning of the process
    to the end of that step; ``jobs``: how many these are; ``restored``: whether they restored a checkpoint. If no job of the run did so,
    they are those that began from scratch."""

    seconds: float
    jobs: int
    restored: bool


def newest_restarts(run: Run) -> Restarts | None:
    """The newest restarts of ``run``; None if no job has told of its first step, or none could tell when its process began. A file that
    can't be read, or is damaged, counts as one that does not tell: only a person needs the answer."""
    found: dict[bool, list[tuple[int, float]]] = {True: [], False: []}
    with contextlib.suppress(OSError, Error):
        for name in run.store.list(names.EVENTS_DIR):
            parsed = names.parse_events_file(name)
            if parsed is not None and parsed[1] == 0:
                with contextlib.suppress(OSError, Error):
                    for restored, t, seconds in _starts(run, f"{names.EVENTS_DIR}/{name}"):
                        found[restored].append((t, seconds))
    for restored, starts in found.items():
        if starts:
            newest = [seconds for _, seconds in sorted(starts)[-_NEWEST:]]
            return Restarts(statistics.median(newest), len(newest), restored)
    return None


def _starts(run: Run, name: str) -> Iterator[tuple[bool, int, float]]:
    """Of the file's job: whether it restored a checkpoint, when its first step was done, and how many seconds after the process began."""
    with contextlib.closing(run.store.open(name)) as file:
        lines = file.get(0, min(_HEAD, file.size)).split(b"\n")[:-1]  # what is behind the last newline is no whole line
    restored: bool | None = None
    for event in filter(None, map(parse, lines)):
        if event["kind"] == Attempt.__name__.lower():
            restored = event.get("resumed") is not None
        elif event["kind"] == Started.__name__.lower() and restored is not None:
            seconds = event.get("seconds")
            if event.get("since") == "process" and is_number(seconds) and seconds >= 0:
                yield restored, event["t"], float(seconds)
            return
